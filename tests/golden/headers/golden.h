a header that never changes
