"""The formats that are read and written: a spec, what is drawn from it, and exports."""
