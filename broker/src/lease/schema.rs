//! How leases and progress look in the store.
