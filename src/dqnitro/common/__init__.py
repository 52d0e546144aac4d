"""Small tools that every layer may use: files, the host's facts, intervals, values out of JSON, signals."""
