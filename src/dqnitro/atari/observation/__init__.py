"""From palette codes to what an agent sees: colours, and resizing as OpenCV does it."""
