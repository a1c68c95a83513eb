"""What each door to another library costs a step, beside that library's own toy environment: one module each."""
