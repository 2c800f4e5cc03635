//! placeholder
use crate::exit::Failure;
use crate::output::Format;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
impl Args {
    pub(crate) async fn run(self, _format: Format) -> Result<(), Failure> {
        Ok(())
    }
}
