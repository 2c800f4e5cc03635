use std::path::PathBuf;

use proptest::prelude::*;
use ring::hmac;
use waybill_ops::config::Live;

use super::rules::permit;
use super::*;

/// What the published clients make of the secret key "sk" (Java, Python), and of stranger ones (Python).
const GOLDEN: [(&str, &str, &str); 4] = [
    ("sk", "20261130T193000Z", "C0DADD4DDD975AC45DEC0E3CC16D09293EF83A20"),
    ("sk", "20261130T193000Z", "c0dadd4ddd975ac45dec0e3cc16d09293ef83a20"),
    ("秘密 key/+=", "2026-11-30T19:30:00.123456+00:00", "b5aff380adf142e2e6ea6c731d6bf72eac21e1f3"),
    (
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
        "",
        "10e662acd95fe69433326f84609dcfad9e5cb1d1",
    ),
];

/// As the published clients write it; not made by the code under test.
fn header(access_key: &str, signature: &str) -> String {
    format!("MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={signature}")
}

fn sign(secret_key: &str, date_time: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret_key.as_bytes());
    hex::encode(hmac::sign(&key, date_time.as_bytes()))
}

struct File {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let file = Self { path: dir.path().join("users.yaml"), _dir: dir };
        std::fs::write(&file.path, text).expect("written");
        file
    }

    fn load(&self) -> Result<Live<Users>, ConfigError> {
        Live::load_adjusted(&self.path, Users::index)
    }
}

fn users(text: &str) -> Arc<Users> {
    File::new(text).load().expect("good users").get()
}

fn mistake(text: &str) -> String {
    File::new(text).load().map(drop).expect_err("bad users").to_string()
}

#[test]
fn the_signatures_of_the_published_clients_are_good() {
    for (secret_key, date_time, signature) in GOLDEN {
        let users = users(&format!("users: [{{ accessKey: ak, secretKey: {secret_key:?} }}]"));
        // As Java and Python write it, and as Go does.
        for credential in ["ak", "ak//Rocketmq"] {
            let signed = Signed::read(Some(&header(credential, signature)), Some(date_time)).expect("readable");
            assert_eq!(users.authenticate(&signed).map(drop), Ok(()), "{secret_key} {date_time}");
        }
        let other = Signed::read(Some(&header("ak", signature)), Some("20261130T193001Z")).expect("readable");
        assert_eq!(users.authenticate(&other).map(drop), Err(Refusal::WrongSignature), "another time");
    }
}

#[test]
fn our_own_client_signs_as_they_do() {
    let made = authorization("ak", "sk", "20261130T193000Z");
    assert_eq!(made, header("ak", "c0dadd4ddd975ac45dec0e3cc16d09293ef83a20"));
}

#[test]
fn what_is_not_a_signature_is_told_apart() {
    let good = sign("sk", "now");
    let read = |authorization: Option<&str>| Signed::read(authorization, Some("now")).map(drop);
    for unsigned in
        [None, Some(""), Some("  "), Some(header("", &good).as_str()), Some(header("//Rocketmq", &good).as_str())]
    {
        assert_eq!(read(unsigned), Err(Refusal::Unsigned), "{unsigned:?}");
    }
    let long = "k".repeat(129);
    for malformed in [
        "MQv2-HMAC-SHA1".to_owned(),
        format!("Bearer {good}"),
        format!("MQv2-HMAC-SHA1 Credential=ak, Signature={}", &good[1..]),
        format!("MQv2-HMAC-SHA1 Credential=ak, Signature={good}00"),
        format!("MQv2-HMAC-SHA1 Credential=ak, Signature={}", "x".repeat(40)),
        "MQv2-HMAC-SHA1 Credential=ak".to_owned(),
        format!("MQv2-HMAC-SHA1 Signature={good}"),
        header(&long, &good),
    ] {
        assert_eq!(read(Some(&malformed)), Err(Refusal::Malformed), "{malformed}");
    }
    assert_eq!(Signed::read(Some(&header("ak", &good)), None).map(drop), Err(Refusal::Malformed), "without a time");
}

#[test]
fn who_is_no_user_is_not_let_in() {
    let users = users("users: [{ accessKey: ak, secretKey: sk }, { accessKey: off, secretKey: sk, enabled: false }]");
    let authenticate = |access_key: &str, signature: &str| {
        let signed = Signed::read(Some(&header(access_key, signature)), Some("now")).expect("readable");
        users.authenticate(&signed).map(drop)
    };
    let good = sign("sk", "now");
    assert_eq!(authenticate("ak", &good), Ok(()));
    assert_eq!(authenticate("aK", &good), Err(Refusal::UnknownAccessKey));
    assert_eq!(authenticate("ak", &sign("sK", "now")), Err(Refusal::WrongSignature));
    assert_eq!(authenticate("off", &good), Err(Refusal::Disabled));
    assert_eq!(authenticate("off", &sign("", "now")), Err(Refusal::WrongSignature), "told only to who has the secret");
    assert_eq!(authenticate("nobody", &sign("", "now")), Err(Refusal::UnknownAccessKey));
    assert_eq!(
        Refusal::UnknownAccessKey.to_string(),
        Refusal::WrongSignature.to_string(),
        "which keys exist is not told"
    );
}

fn permissions(text: &str) -> Vec<Permission> {
    serde_json::from_str(text).expect("permissions")
}

fn may(permissions: &[Permission], action: &'static [Action], resource: Resource<'_>) -> bool {
    permit(permissions, Need { resource, any_of: action })
}

const PUB: &[Action] = &[Action::Pub];
const SUB: &[Action] = &[Action::Sub];

#[test]
fn the_most_exact_permission_decides() {
    use Resource::{Group, Topic};
    let given = permissions(
        r#"[{"topic": "*", "actions": ["SUB"]},
            {"topic": "orders-*", "actions": ["PUB", "SUB"]},
            {"topic": "orders-secret*", "actions": ["SUB"], "decision": "DENY"},
            {"topic": "orders-secret-but-mine", "actions": ["SUB"]},
            {"topic": "twice", "actions": ["PUB"]}, {"topic": "twice", "actions": ["PUB"], "decision": "DENY"},
            {"group": "workers*"}, {"group": "workers-of-others", "decision": "DENY"}]"#,
    );
    for (action, resource, wanted) in [
        (SUB, Topic("anything"), true),
        (PUB, Topic("anything"), false),
        (PUB, Topic("orders-new"), true),
        (PUB, Topic("orders"), false),
        (PUB, Topic("ORDERS-new"), false),
        (SUB, Topic("orders-secret"), false),
        (SUB, Topic("orders-secrets"), false),
        (PUB, Topic("orders-secret"), true),
        (SUB, Topic("orders-secret-but-mine"), true),
        (SUB, Topic("orders-secret-but-mine2"), false),
        (PUB, Topic("twice"), false),
        (SUB, Group("workers"), true),
        (SUB, Group("workers-2"), true),
        (SUB, Group("workers-of-others"), false),
        (SUB, Group("worker"), false),
        (SUB, Group("anything"), false),
    ] {
        assert_eq!(may(&given, action, resource), wanted, "{action:?} {resource}");
    }
    assert!(may(&given, &[Action::Pub, Action::Sub], Topic("anything")), "one of them is enough");
    assert!(
        !may(&[], SUB, Topic("anything")) && !may(&[], SUB, Group("anything")),
        "what is not permitted is forbidden"
    );
}

#[test]
fn dead_letters_and_retries_of_a_group_are_read_by_who_may_consume_in_it() {
    use Resource::Topic;
    let group = permissions(r#"[{"group": "shop%workers"}]"#);
    assert!(may(&group, SUB, Topic("%DLQ%shop%workers")) && may(&group, SUB, Topic("%RETRY%shop%workers")));
    assert!(!may(&group, PUB, Topic("%DLQ%shop%workers")), "nobody sends there for that");
    assert!(!may(&group, SUB, Topic("shop%workers")) && !may(&group, SUB, Topic("%DLQ%workers")));
    let but = permissions(r#"[{"group": "g"}, {"topic": "%DLQ%*", "actions": ["SUB"], "decision": "DENY"}]"#);
    assert!(!may(&but, SUB, Topic("%DLQ%g")) && may(&but, SUB, Topic("%RETRY%g")));
}

#[test]
fn a_super_user_may_do_everything_and_others_what_they_are_given() {
    let users = users(
        "users:\n- { accessKey: root, secretKey: s, superUser: true }\n\
         - accessKey: app\n  secretKey: s\n  permissions:\n  - { topic: orders, actions: [PUB] }\n",
    );
    let may = |access_key: &str, name| {
        users.get(access_key).expect("a user").may(Need { resource: Resource::Topic(name), any_of: PUB })
    };
    assert!(may("root", "anything") && may("app", "orders") && !may("app", "anything"));
}

#[test]
fn mistakes_in_the_file_are_told_with_their_place() {
    for (text, wanted) in [
        ("users: [{ accessKey: a, secretKey: s }, { accessKey: a, secretKey: t }]", "users[0].accessKey: another user"),
        ("users: [{ accessKey: 'a,b', secretKey: s }]", "users[0].accessKey: an access key has"),
        ("users: [{ accessKey: 'a/b', secretKey: s }]", "users[0].accessKey: an access key has"),
        ("users: [{ accessKey: '', secretKey: s }]", "users[0].accessKey: an access key has"),
        ("users: [{ accessKey: a, secretKey: '' }]", "users[0].secretKey: it is empty"),
        ("users: [{ accessKey: a }]", "secretKey is missing"),
        (
            "users: [{ accessKey: a, secretKey: s, permissions: [{ actions: [PUB] }] }]",
            "users[0].permissions[0]: it names either",
        ),
        (
            "users: [{ accessKey: a, secretKey: s, permissions: [{ topic: t, group: g }] }]",
            "permissions[0]: it names either",
        ),
        ("users: [{ accessKey: a, secretKey: s, permissions: [{ topic: t }] }]", "a topic needs actions"),
        (
            "users: [{ accessKey: a, secretKey: s, permissions: [{ group: g, actions: [PUB] }] }]",
            "a group has no action but SUB",
        ),
        (
            "users: [{ accessKey: a, secretKey: s, permissions: [{ topic: 'a*b', actions: [PUB] }] }]",
            "a name has letters",
        ),
        ("users: [{ accessKey: a, secretKey: s, permissions: [{ topic: '', actions: [PUB] }] }]", "a name has letters"),
    ] {
        let told = mistake(text);
        assert!(told.contains(wanted) && told.contains("users.yaml"), "{told} for {text}");
    }
    assert_eq!(users("revision: '7'\nusers: []").revision(), "7");
    assert_eq!(users("{}").count(), 0, "nobody is let in");
}

/// Every text and number in the value becomes the secret in turn.
fn with_secret_somewhere(value: &Json, secret: &Json) -> Vec<Json> {
    let mut made = vec![secret.clone()];
    match value {
        Json::Object(fields) => {
            for (name, field) in fields {
                for changed in with_secret_somewhere(field, secret) {
                    let mut copy = fields.clone();
                    copy.insert(name.clone(), changed);
                    made.push(copy.into());
                }
                let mut copy = fields.clone();
                copy.insert(secret.to_string().trim_matches('"').to_owned(), field.clone());
                made.push(copy.into());
            }
        }
        Json::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                for changed in with_secret_somewhere(item, secret) {
                    let mut copy = items.clone();
                    if let Some(place) = copy.get_mut(at) {
                        *place = changed;
                    }
                    made.push(copy.into());
                }
            }
        }
        _ => {}
    }
    made
}

#[test]
fn no_secret_is_told_wherever_it_was_put() {
    let good = json!({ "revision": "1", "users": [
        { "accessKey": "a", "secretKey": "s", "superUser": false, "enabled": true,
          "permissions": [{ "topic": "t", "actions": ["PUB"], "decision": "ALLOW" }, { "group": "g" }] },
    ] });
    let mut refused = 0;
    for secret in [json!("hunter2hunter2"), json!(7_234_567_890_123_u64), json!(["hunter2hunter2"])] {
        for text in with_secret_somewhere(&good, &secret).iter().map(Json::to_string) {
            let file = File::new(&text);
            let told = match file.load() {
                Ok(live) => format!("{:?} {:?}", live.status(), live),
                Err(error) => {
                    refused += 1;
                    format!("{error} {error:?}")
                }
            };
            // A name is no secret where names belong.
            let is_name = ["accessKey", "revision", "topic", "group"]
                .iter()
                .any(|key| text.contains(&format!("\"{key}\":{secret}")));
            let leaks = told.contains("hunter2") || told.contains("7234567890123");
            assert!(!leaks || is_name, "{told} for {text}");
        }
    }
    assert!(refused > 20, "{refused}");
}

proptest! {
    /// Whatever is written into the headers is read or refused, and let in only if the signature is right.
    #[test]
    fn nothing_strange_is_let_in(authorization in "(MQv2-HMAC-SHA1 )?[ -~]{0,80}", date_time in "\\PC{0,20}") {
        let users = Users::default();
        if let Ok(signed) = Signed::read(Some(&authorization), Some(&date_time)) {
            prop_assert_eq!(users.authenticate(&signed).map(drop), Err(Refusal::UnknownAccessKey));
        }
    }

    /// A signature is good for one key and one time.
    #[test]
    fn only_the_secret_makes_a_good_signature(secret in "[ -~]{1,70}", other in "[ -~]{1,70}", date_time in "[ -~]{0,40}") {
        let users = users(&json!({ "users": [{ "accessKey": "ak", "secretKey": secret }] }).to_string());
        let authenticate = |key: &str| {
            let signed = Signed::read(Some(&header("ak", &sign(key, &date_time))), Some(&date_time)).expect("readable");
            users.authenticate(&signed).map(drop)
        };
        prop_assert_eq!(authenticate(&secret), Ok(()));
        if secret != other {
            prop_assert_eq!(authenticate(&other), Err(Refusal::WrongSignature));
        }
    }
}
