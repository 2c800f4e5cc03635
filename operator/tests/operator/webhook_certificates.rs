//! Certificates of the webhook over the years: at every moment one that whoever trusts the bundle of some minutes ago accepts.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::{RootCertStore, crypto::ring};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use waybill_operator::inject::Certificates;

use crate::rig::START_MS;

const NAME: &str = "waybill-operator.waybill-system.svc";
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

fn names() -> Vec<String> {
    vec![NAME.to_owned()]
}

/// Whether whoever trusts `bundle` accepts `certificate` at this time.
fn accepts(bundle: &str, certificate: &str, at_ms: i64) -> bool {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(authority.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().expect("a verifier");
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
    let at = UnixTime::since_unix_epoch(Duration::from_millis(u64::try_from(at_ms).expect("a time")));
    let name = ServerName::try_from(NAME).expect("a name");
    verifier.verify_server_cert(&certificate, &[], &name, &[], at).is_ok()
}

#[test]
fn for_three_years_every_certificate_is_accepted_by_those_who_trust_the_bundle_of_half_an_hour_ago() {
    let mut kept = Certificates::next(None, &names(), START_MS).expect("made").expect("the first");
    let (mut authorities, mut certificates) = (1, 1);
    let mut trusted = kept.bundle();
    for step in 0..3 * 365 * 4 {
        let now = START_MS + step * 6 * HOUR_MS;
        if let Some(next) = Certificates::next(Some(&kept), &names(), now).expect("made") {
            authorities += usize::from(next.bundle() != kept.bundle());
            certificates += usize::from(next.certificate != kept.certificate);
            assert!(accepts(&trusted, &next.certificate, now), "step {step}");
            assert!(
                accepts(&next.bundle(), &kept.certificate, now),
                "other operators still have the old one, step {step}"
            );
            kept = next;
        }
        assert!(accepts(&kept.bundle(), &kept.certificate, now + 10 * DAY_MS), "step {step}");
        trusted = kept.bundle();
    }
    assert!((5..=12).contains(&authorities) && (15..=40).contains(&certificates), "{authorities}, {certificates}");
}

#[test]
fn a_new_authority_signs_nothing_for_an_hour() {
    let first = Certificates::next(None, &names(), START_MS).expect("made").expect("the first");
    assert_eq!(Certificates::next(Some(&first), &names(), START_MS + DAY_MS).expect("made"), None);
    let mut kept = first;
    let mut now = START_MS;
    let announced = loop {
        now += DAY_MS;
        let Some(next) = Certificates::next(Some(&kept), &names(), now).expect("made") else { continue };
        if next.bundle() != kept.bundle() {
            break next;
        }
        kept = next;
    };
    assert_eq!(announced.certificate, kept.certificate);
    assert_eq!(Certificates::next(Some(&announced), &names(), now + HOUR_MS / 2).expect("made"), None);
    let signed = Certificates::next(Some(&announced), &names(), now + HOUR_MS).expect("made").expect("a new one");
    assert_ne!(signed.certificate, announced.certificate);
    assert!(!accepts(&kept.bundle(), &signed.certificate, now + HOUR_MS), "the new authority signed it");
    assert!(accepts(&announced.bundle(), &signed.certificate, now + HOUR_MS));
}

#[test]
fn after_a_long_sleep_with_another_name_or_from_the_future_it_begins_anew() {
    let first = Certificates::next(None, &names(), START_MS).expect("made").expect("the first");
    let other = vec!["another.namespace.svc".to_owned()];
    for (names, now) in [(names(), START_MS + 400 * DAY_MS), (other, START_MS), (names(), START_MS - 400 * DAY_MS)] {
        let next = Certificates::next(Some(&first), &names, now).expect("made").expect("anew");
        assert_ne!(next.bundle(), first.bundle());
        assert_ne!(next.certificate, first.certificate);
    }
}
