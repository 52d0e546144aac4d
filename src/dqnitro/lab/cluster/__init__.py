"""What Ray costs a run with players: `cost` measures it, `model` predicts larger clusters from that."""
