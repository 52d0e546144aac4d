"""DQNitro: DQN on Atari as fast as your machine allows."""
