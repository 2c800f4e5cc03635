//! The arguments of the program.

use crate::exit::{EXIT_CODES, Failure};
use crate::output::Format;
use crate::{admin, bench, message, standalone};

/// RocketMQ 5 messaging: run it, look after it, try it, measure it
#[derive(Debug, clap::Parser)]
#[command(name = "waybill", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// How to print the result
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) output: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run a broker and a sidecar in this process: everything a client needs
    Standalone(standalone::Args),
    /// Topics of a broker
    #[command(subcommand, arg_required_else_help = true)]
    Topic(admin::topic::Command),
    /// Consumer groups of a broker
    #[command(subcommand, arg_required_else_help = true)]
    Group(admin::group::Command),
    /// Send, receive and acknowledge messages by hand
    #[command(subcommand, arg_required_else_help = true)]
    Message(message::Command),
    /// Messages that are out with consumers
    #[command(subcommand, arg_required_else_help = true)]
    Lease(admin::lease::Command),
    /// Put load on an endpoint and measure it
    #[command(subcommand, arg_required_else_help = true)]
    Bench(bench::Command),
}

impl Cli {
    /// Does what was asked.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Standalone(args) => args.run(self.output).await,
            Command::Topic(command) => command.run(self.output).await,
            Command::Group(command) => command.run(self.output).await,
            Command::Message(command) => command.run(self.output).await,
            Command::Lease(command) => command.run(self.output).await,
            Command::Bench(command) => command.run(self.output).await,
        }
    }
}
