"""Masters that are ended by a signal, one after the other, each followed by the next."""

from harness.masters import Masters, wall_ms

# With three of them two stand in the queue while the one that was ended is started again.
CANDIDATES = ("proxy-a", "proxy-b", "proxy-c")


def with_a_third(cluster):
    """Starts the third candidate of a cluster that runs; answers its masters."""
    cluster.start_program("proxy-c")
    return Masters(cluster)


def terms_ended_by(cluster, masters, number, runs):
    """Ends the master with a signal, again and again; (when, the signalled program, the next term) of each run."""
    term = masters.wait_acting()
    for _ in range(runs):
        masters.wait_queued(len(CANDIDATES))
        name = masters.program_of(term)
        program = cluster.programs[name]
        at = wall_ms()
        program.send(number)
        after = masters.wait_term_after(term.epoch)
        assert after.epoch == term.epoch + 1, "the epoch is raised by one, by one"
        assert masters.program_of(after) != name
        term = masters.wait_acting(term.epoch)
        program.wait(within_s=20)
        yield at, program, after
        cluster.start_program(name, wait=False)
