"""From artifacts to kernels that can be launched. Importing a loader imports no vendor's library."""
