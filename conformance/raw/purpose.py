"""Where the answer may be another than Apache's: target → (question, a regular expression; accepted answer; reason).

The accepted answer is a regular expression on the codes of the answer, top status first, then the entries; where it has none, on
its whole text.
"""
CLIENT_MISTAKE = "Apache answers INTERNAL_SERVER_ERROR to a client's mistake; the precise code"
NO_EFFECT = "Apache answers OK without effect; refused instead"
LATER = "not built yet: NOT_IMPLEMENTED or gRPC UNIMPLEMENTED until its issue"
DOCUMENTED = "without a policy of its own a group waits as RocketMQ's documentation says: unordered 10 s, 30 s, 1 min to 2 h; ordered a fixed time"
NOT_FOUND = "what is missing is named, not taken for a conflict or an internal error"

# What the broker cannot do yet, whichever proxy asks it.
NOT_YET = [
    (r"sync_lite|pull|(update|get|query)_offset", r"50100|UNIMPLEMENTED", LATER),
]

WAYBILL = [
    (r"receive\.bad_sql", r"40010", CLIENT_MISTAKE),
    (r"telemetry\.consumer\.missing_group\.reply", r'\{"status": \{"code": "OK".*"client_type": "SIMPLE_CONSUMER".*', "some clients wait for ever when their stream ends; told at receive"),
    (r"telemetry\.((simple|push)_consumer|consumer\.(missing_group|bad_sql))\.reply",
     r'(?=.*"max_attempts": 17\b).*"customized_backoff": \{"next": \["10s", "30s", "60s",[^]]*"3600s", "7200s"\]\}.*', DOCUMENTED),
    (r"telemetry\.push_consumer\.fifo_group\.reply",
     r'(?=.*"max_attempts": 4\b)(?=.*"fifo": true).*"exponential_backoff": \{"initial": "1s", "max": "1s", "multiplier": 1\.0\}.*', DOCUMENTED),
    (r"receive\.no_telemetry", r"40015", CLIENT_MISTAKE),
    (r"receive\.missing_group_after_telemetry", r"40403|40015", CLIENT_MISTAKE),
    (r"ack\.(garbage|empty)_handle", r"40013( 40013)?", CLIENT_MISTAKE),
    (r"ack\.no_entries", r"40000", CLIENT_MISTAKE),
    (r"ack\.missing_topic", r"(40402|40013)( (40402|40013))?", CLIENT_MISTAKE),
    (r"ack\.missing_group", r"(40403|40013)( (40403|40013))?", NO_EFFECT),
    (r"ack\.wrong_(group|topic)", r"40013( 40013)?", NO_EFFECT),
    (r"ack\.batch_one_bad", r"30000 20000 40013", CLIENT_MISTAKE),
    (r"cid\.(garbage|after_ack)", r"40013", CLIENT_MISTAKE + "; a message that is gone has no lease to extend"),
    (r"cid\.missing_group", r"40403|40013", NO_EFFECT),
    (r"cid\.missing_topic", r"40402|40013", CLIENT_MISTAKE),
    (r"dlq\.forward_(garbage|twice)", r"40013", CLIENT_MISTAKE),
    (r"send\.missing_topic", r"40402", NOT_FOUND),
    (r"send\.prop_empty_key", r"40007", "an empty name cannot be stored; refused instead of dropped"),
    (r"heartbeat\.unspecified_type", r"40015", "an unknown client type is refused"),
    (r"tx\.entry\.form", r"transaction_id=yes len=\d+", "it holds all that any sidecar must know"),
    (r"tx\.end\.(garbage_id|missing_topic)", r"40008|40402", CLIENT_MISTAKE),
    (r"tx\.end\.(commit_twice|unspecified)", r"20000", "the same end once more is done already; what is not known yet changes nothing"),
    (r"recall\.ok", r"20000", "recall is on; Apache's broker has it off unless told otherwise (recallMessageEnable)"),
    (r"recall\.twice", r"40401", NO_EFFECT),
    (r"recall\.(garbage|wrong_topic)", r"40000|40014", CLIENT_MISTAKE),
    (r"send\.two", r"20000 20000 20000", "one entry for each message, with its own id, instead of one for all"),
    (r"ack\.expired_handle.*", r"20000 20000", "late, but nobody else was given the message: taken, which saves a duplicate"),
    (r"dlq\.message\.json", r'(?=.*"delivery_attempt": 1\b)(?=.*"dead_letter_queue": \{"topic": "raw-[^"]+", "message_id").*', "a dead letter says where it comes from (dead_letter_queue), and its attempt"),
]

# Apache's proxy before Waybill's broker: the proxy makes one code, INTERNAL_SERVER_ERROR, of all that the broker refuses.
REFUSED = "Apache answers OK without effect; Waybill's broker refuses, and Apache's proxy has one code for that"
APACHE_PROXY = [
    (r"ack\.(wrong_(group|topic)|missing_group)", r"50001 50001", REFUSED),
    (r"cid\.(missing_group|after_ack)", r"50001", REFUSED),
    (r"recall\.ok", r"20000", "recall is on; Apache's broker has it off unless told otherwise (recallMessageEnable)"),
    (r"receive\.batch_0", r"50001", "Waybill's broker refuses a receive of no messages; its sidecar does not pass one on"),
    (r"dlq\.message\.json", r'(?=.*"delivery_attempt": 1\b)(?=.*"message_type": "NORMAL").*', "a dead letter keeps its message type, and its attempt"),
]

# Waybill's sidecar before Apache's broker, which recalls nothing unless it is told to.
WAYBILL_SIDECAR = [
    (r"recall\.(ok|twice)", r"40300", CLIENT_MISTAKE),
]

PURPOSE = {"waybill": WAYBILL + NOT_YET, "waybill-sidecar": WAYBILL_SIDECAR + WAYBILL + NOT_YET, "apache-proxy": APACHE_PROXY + NOT_YET}
