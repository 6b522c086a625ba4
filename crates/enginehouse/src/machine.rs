//! Resources of this machine.

/// The memory of this machine, in bytes.
pub fn memory_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    machine.totalram.saturating_mul(u64::from(machine.mem_unit))
}
