"""What a training run is made of: its settings, its presets, its environments."""
