//! The arguments of the program.

use crate::exit::{EXIT_CODES, Failure};
use crate::output::Format;
use crate::{admin, bench, ending, standalone};

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
    /// Send, receive and acknowledge messages by hand; find them; send dead letters back
    #[command(subcommand, arg_required_else_help = true)]
    Message(admin::message::Command),
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
        // What it has in hand it brings to an end.
        if !matches!(self.command, Command::Standalone(_)) {
            ending::at_once();
        }
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

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_well_formed() {
        Cli::command().debug_assert();
    }

    /// The page with every command's help.
    fn page() -> String {
        let mut page = String::from(
            "# The command line\n\nMade from the program's own help by `make docs`; a test fails while the two differ.\n",
        );
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        append(&mut page, &mut command);
        page
    }

    fn append(page: &mut String, command: &mut clap::Command) {
        let name = command.get_bin_name().unwrap_or("waybill").to_owned();
        let help = command.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        let _infallible = write!(page, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n").trim_end());
        for subcommand in command.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            append(page, subcommand);
        }
    }

    #[test]
    fn generated_docs_of_the_command_line() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
        let page = page();
        if std::env::var_os("WAYBILL_WRITE_DOCS").is_some() {
            std::fs::write(path, &page).expect("docs/cli.md");
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == page, "docs/cli.md is not what the program says of itself: run `make docs`");
    }
}
