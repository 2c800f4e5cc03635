//! The Waybill command line.
fn main() {}
