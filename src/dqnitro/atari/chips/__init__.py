"""The console chip by chip: 6507, TIA, RIOT, cartridge, joysticks; `frame` runs them for one frame."""
