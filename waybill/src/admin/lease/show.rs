//! Leases as a table for people.

use super::listing::{Lease, Leases};
use crate::output;
use crate::quantity::millis;

pub(super) fn table(leases: &Leases) -> String {
    let now_ms = leases.now;
    let rows = leases.leases.iter().map(|lease| {
        let heard = leases.watched.get(&lease.holder).map(|last_ms| millis(now_ms - last_ms));
        [
            lease.group.clone(),
            lease.topic.clone(),
            lease.queue_id.to_string(),
            lease.offset.to_string(),
            if lease.holder.is_empty() { "-".to_owned() } else { lease.holder.clone() },
            lease.attempts.to_string(),
            millis(now_ms - lease.pop_time),
            millis(lease.deadline - now_ms),
            lease.changes.to_string(),
            kept(leases, lease).to_owned(),
            heard.unwrap_or_else(|| "-".to_owned()),
        ]
    });
    let heading = [
        "GROUP",
        "TOPIC",
        "QUEUE",
        "OFFSET",
        "HOLDER",
        "DELIVERIES",
        "HELD FOR",
        "ENDS IN",
        "EXTENDED",
        "KEPT",
        "HEARD",
    ];
    let more = if leases.truncated { "and more: --group, --topic and --client narrow the list\n" } else { "" };
    format!("{}{more}", output::table(heading, rows))
}

/// How the group wants its leases to be kept.
fn kept(leases: &Leases, lease: &Lease) -> &'static str {
    match leases.groups.get(&lease.group).and_then(|group| group.renew) {
        Some(true) => "renewed",
        Some(false) => "whole",
        None => "by sidecar",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_how_long_and_by_whom() {
        let json =
            br#"{"leases":[{"group":"g","topic":"orders","queueId":3,"offset":17,"holder":"pod-1","popTime":1000,
            "invisibleTime":60000,"deadline":61000,"attempts":2,"changes":1},
            {"group":"h","topic":"t","holder":"","popTime":1000,"deadline":500}],
            "truncated":true,"now":31000,"watched":{"pod-1":29000},"groups":{"g":{"renew":false}}}"#;
        let leases: Leases = serde_json::from_slice(json).expect("JSON");
        let text = table(&leases);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["g", "orders", "3", "17", "pod-1", "2", "30s", "30s", "1", "whole", "2s"]);
        assert_eq!(lines[2], ["h", "t", "0", "0", "-", "0", "30s", "-30.5s", "0", "by", "sidecar", "-"]);
        assert!(text.ends_with("--client narrow the list\n"));
    }
}
