"""What the games add to the console: ROMs, the table of games, rules for reward, lives and the end of a game."""
