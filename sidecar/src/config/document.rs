//! The documentation page, made from the table of keys.

use std::fmt::Write;

use super::{Config, Effect};

/// `docs/configuration-sidecar.md`, whole.
#[must_use]
pub fn document() -> String {
    let mut page = String::from(
        "# Configuration of the sidecar\n\n\
         Made by `waybill-sidecar --print-config-docs`; a test compares it with the code. Do not edit it by hand.\n\n\
         The file is YAML (JSON is YAML too): `waybill-sidecar --config sidecar.yaml`. Every key may be left out, but `namesrvAddr` must be given here, \
         with `--namesrv-addr`, or in the environment variable `NAMESRV_ADDR`. A key that is not in this table is refused by name. Keys that Apache's \
         proxy has keep their names.\n\n\
         The file is read again when it changes. *At once*: the new value counts for whatever begins afterwards. *At start*: the old value stays until \
         the process is started again; a log line and `/config` say so. A file with a mistake changes nothing; the mistake is logged with line and key.\n\n\
         A consumer group may have its own values of `enableGrpcChannelReceiptHandleRenew`, `defaultInvisibleTimeMills` and \
         `batchChangeInvisibleTimeMaxNum`; which value counts then is told in [operations.md](operations.md#leases).\n\n\
         | key | default | allowed | unit | a change counts | what it is for |\n\
         |---|---|---|---|---|---|\n",
    );
    for key in Config::keys() {
        let effect = match key.effect {
            Effect::Dynamic => "at once",
            Effect::Restart => "at start",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {effect} | {} |",
            key.name,
            key.default,
            key.allowed,
            key.unit,
            key.doc.trim()
        );
    }
    page
}
