"""The failpoint walk: every failpoint of the program is hit on real processes, and everything is as it should be after."""
