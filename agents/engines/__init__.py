"""Engines: what samples tokens and takes optimiser steps. The only place that may import torch."""
