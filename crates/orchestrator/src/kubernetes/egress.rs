//! Egress rules: where engines may connect to in addition to DNS, the coordination service and their executors. A rule is a
//! block of addresses and a TCP port, such as `10.0.0.0/8:443`.
//!
//! The addresses at which clouds serve machine credentials are never allowed: a block of only such addresses is refused, and
//! a larger one excludes them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Link-local addresses, and the metadata service that one cloud has in the private range.
const NEVER: [Block; 3] = [
    Block { address: IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), prefix: 16 },
    Block { address: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), prefix: 10 },
    Block { address: IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), prefix: 128 },
];

/// An egress rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Egress {
    block: Block,
    port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    address: IpAddr,
    prefix: u8,
}

impl Egress {
    /// The block of addresses, such as `10.0.0.0/8`.
    pub fn block(&self) -> String {
        self.block.to_string()
    }

    /// The parts of the block that are excluded.
    pub fn except(&self) -> Vec<String> {
        NEVER.iter().filter(|never| self.block.contains(never)).map(ToString::to_string).collect()
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Block {
    /// The number of bits of an address of its family.
    const fn bits(&self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// The prefix of an address, as a number.
    fn prefix_of(&self, address: IpAddr) -> u128 {
        let number = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        number.checked_shr(u32::from(self.bits() - self.prefix)).unwrap_or(0)
    }

    fn contains(&self, other: &Self) -> bool {
        self.bits() == other.bits()
            && self.prefix <= other.prefix
            && self.prefix_of(self.address) == self.prefix_of(other.address)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl fmt::Display for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.block, self.port)
    }
}

impl FromStr for Egress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = || {
            let (address, rest) = text.split_once('/')?;
            let (prefix, port) = rest.split_once(':')?;
            let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
            Some((address.parse::<IpAddr>().ok()?, prefix.parse::<u8>().ok()?, port))
        };
        let parsed = parts().map(|(address, prefix, port)| (Block { address, prefix }, port));
        let Some((block, port)) = parsed.filter(|(block, _)| block.prefix <= block.bits()) else {
            return Err(format!(
                "invalid egress rule \"{text}\": expected a block of addresses with a TCP port, such as 10.0.0.0/8:443"
            ));
        };
        match NEVER.iter().find(|never| never.contains(&block)) {
            None => Ok(Self { block, port }),
            Some(never) => {
                Err(format!("egress rule \"{text}\" is within {never}, where clouds serve machine credentials"))
            }
        }
    }
}

impl TryFrom<String> for Egress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Egress> for String {
    fn from(egress: Egress) -> Self {
        egress.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_a_block_of_addresses_with_a_port() {
        for text in ["10.0.0.0/8:443", "192.168.1.7/32:6443", "fd12::/16:2181", "2001:db8::1/128:1"] {
            assert_eq!(text.parse::<Egress>().unwrap().to_string(), text);
        }
        for text in ["", "10.0.0.0/8", "10.0.0.0:443", "10.0.0.0/33:443", "::/129:443", "10.0.0.0/8:0", "x/8:1"] {
            assert!(text.parse::<Egress>().unwrap_err().contains("such as"), "{text}");
        }
    }

    #[test]
    fn addresses_of_machine_credentials_are_excluded() {
        let except = |text: &str| text.parse::<Egress>().unwrap().except();
        assert_eq!(except("0.0.0.0/0:443"), ["169.254.0.0/16"]);
        assert_eq!(except("168.0.0.0/7:443"), ["169.254.0.0/16"]);
        assert_eq!(except("::/0:443"), ["fe80::/10", "fd00:ec2::254/128"]);
        assert_eq!(except("fd00::/8:443"), ["fd00:ec2::254/128"]);
        assert!(except("10.0.0.0/8:443").is_empty());
        for text in ["169.254.0.0/16:80", "169.254.169.254/32:80", "fd00:ec2::254/128:80", "fe80::1/128:1"] {
            assert!(text.parse::<Egress>().unwrap_err().contains("credentials"), "{text}");
        }
    }
}
