"""The way from recorded outcomes of real models to experts that behave like them: fits, and how good a fit is."""
