//! The Waybill command line: a broker and sidecar in one process, administration of brokers, messages by hand, and a
//! load generator.

#![forbid(unsafe_code)]

mod address;
mod admin;
mod bench;
mod body;
mod cli;
mod ending;
mod exit;
mod grpc;
mod message;
mod moment;
mod names;
mod output;
mod peer;
mod quantity;
mod standalone;

use std::process::ExitCode;

use clap::Parser;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let format = cli.output;
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(format),
    }
}

fn run(cli: cli::Cli) -> Result<(), exit::Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| exit::Failure::failed(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(async {
        match cli.run().await {
            Ok(()) => Ok(()),
            Err(failure) => Err(peer::explain(failure).await),
        }
    })
}
