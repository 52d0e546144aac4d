"""What tests share: made-up environments, streams, players and machines, and plain versions to compare with."""
