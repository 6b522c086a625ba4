"""What the scenarios run on: real processes of the binary, real clients, real servers. One file, one thing."""
