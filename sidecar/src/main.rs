//! `waybill-sidecar`: reads its configuration, starts, waits for a signal, drains.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

mod command_line;

use self::command_line::{CommandLine, start};

/// The configuration cannot be used. A command line that cannot be used ends it with 2, which is clap's.
const EXIT_CONFIG: u8 = 64;
/// Something outside failed: a port is taken, a file cannot be read.
const EXIT_FAILED: u8 = 1;

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    if command_line.print_config_docs {
        return command_line::print(&waybill_sidecar::config::document());
    }
    waybill_ops::logs::init(command_line.log_format, "info");
    let runtime = match waybill_ops::runtime::build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(EXIT_FAILED, &format!("cannot start: {error}")),
    };
    match runtime.block_on(start(&command_line)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(command_line::Failure::Config(reason)) => fail(EXIT_CONFIG, &reason),
        Err(command_line::Failure::Other(reason)) => fail(EXIT_FAILED, &reason),
    }
}

fn fail(code: u8, reason: &str) -> ExitCode {
    tracing::error!("{reason}");
    ExitCode::from(code)
}
