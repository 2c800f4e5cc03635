//! The command line and a broker that takes nothing but TLS.

use crate::support::{Dir, Standalone};

#[test]
fn a_broker_with_tls_is_asked_over_tls() {
    let dir = Dir::new();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let certificate = dir.file("tls.crt", &made.cert.pem());
    let key = dir.file("tls.key", &made.signing_key.serialize_pem());
    let text = format!(
        "tlsServerMode: enforcing\ntlsServerCertPath: {}\ntlsServerKeyPath: {}\n",
        certificate.display(),
        key.display()
    );
    let config = dir.file("broker.yaml", &text);
    let waybill = Standalone::start(dir.path(), &["--broker-config", config.to_str().expect("text")]);
    let believed = certificate.to_str().expect("text");
    waybill.admin(&["topic", "list"]).fails(69, &["no broker at", "--tls"]);
    waybill.admin(&["topic", "create", "orders", "--tls"]).ok();
    assert!(waybill.admin(&["topic", "list", "--tls-ca", believed]).ok().out.contains("orders"));

    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let other = dir.file("other.crt", &other.cert.pem());
    let other = other.to_str().expect("text");
    waybill.admin(&["topic", "list", "--tls-ca", other]).fails(69, &["certificate"]);
    waybill.admin(&["topic", "list", "--tls-ca", "/nowhere/ca.crt"]).fails(69, &["/nowhere/ca.crt"]);
}

#[test]
fn a_certificate_that_is_none_is_told_before_anything_starts() {
    let dir = Dir::new();
    let config = dir.file("broker.yaml", "tlsServerCertPath: /nowhere/tls.crt\ntlsServerKeyPath: /nowhere/tls.key\n");
    let data = dir.path().join("data");
    let words =
        ["standalone", "--data-dir", data.to_str().expect("text"), "--broker-config", config.to_str().expect("text")];
    let free = ["--listen", "127.0.0.1:0", "--broker-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    crate::support::run(&[&words[..], &free].concat()).fails(64, &["/nowhere/tls.crt", "tlsServerCertPath"]);
}
