//! The Waybill command line; see the library of the same name.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    waybill::main()
}
