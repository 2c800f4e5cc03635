//! Certificates of the webhook: an authority of its own, and a certificate that it signs. Both are made anew long before they end,
//! and the authority in two steps, so that nobody meets a certificate of an authority that it has not heard of. Pure but for keys.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

const DAY_MS: i64 = 24 * 3_600 * 1_000;
/// How long an authority is good.
const AUTHORITY_MS: i64 = 365 * DAY_MS;
/// How long a certificate is good.
const SERVING_MS: i64 = 90 * DAY_MS;
/// A new authority signs nothing until the API server has surely heard of it.
const HEARD_MS: i64 = 3_600 * 1_000;
/// Clocks of others may be behind.
const SKEW_MS: i64 = 5 * 60 * 1_000;
/// The newest authority, and the one before.
const AUTHORITIES: usize = 2;

/// When something was made and when it ends, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Span {
    made: i64,
    ends: i64,
}

impl Span {
    fn of(now_ms: i64, length_ms: i64) -> Self {
        Self { made: now_ms, ends: now_ms + length_ms }
    }

    /// Two thirds of it are over, or the clock is wrong.
    fn is_due(self, now_ms: i64) -> bool {
        now_ms >= self.made + (self.ends - self.made) / 3 * 2 || now_ms + DAY_MS < self.made
    }
}

/// An authority that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Authority {
    span: Span,
    pem: String,
}

/// All that is kept of the webhook's certificates, in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificates {
    /// Those that are trusted, the newest first.
    authorities: Vec<Authority>,
    /// The key of the newest.
    authority_key: String,
    /// The certificate of the server, with its names.
    serving: Span,
    /// Which authority signed it: when that was made.
    signed_by: i64,
    names: Vec<String>,
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: String,
}

impl Certificates {
    /// What `kept` is to become by now, for a server of these names. None: it is good as it is.
    ///
    /// # Errors
    /// No certificate can be made: a defect.
    pub fn next(kept: Option<&Self>, names: &[String], now_ms: i64) -> Result<Option<Self>, rcgen::Error> {
        let Some(kept) = kept.filter(|kept| kept.can_go_on(names, now_ms)) else {
            return Self::anew(names, now_ms).map(Some);
        };
        let mut next = kept.clone();
        next.authorities.retain(|authority| authority.span.ends > now_ms);
        let newest = next.authorities.first().map(|authority| authority.span);
        if newest.is_none_or(|span| span.is_due(now_ms)) {
            let (authority, key) = authority(now_ms)?;
            next.authorities.insert(0, authority);
            next.authorities.truncate(AUTHORITIES);
            next.authority_key = key;
        } else if let Some(newest) = newest
            && now_ms - newest.made >= HEARD_MS
            && (next.signed_by != newest.made || next.serving.is_due(now_ms))
        {
            next.sign(newest, now_ms)?;
        }
        Ok((next != *kept).then_some(next))
    }

    /// PEM of all authorities that are trusted.
    #[must_use]
    pub fn bundle(&self) -> String {
        self.authorities.iter().map(|authority| authority.pem.as_str()).collect()
    }

    /// Whether the server can go on with its certificate for now.
    fn can_go_on(&self, names: &[String], now_ms: i64) -> bool {
        let signer = self
            .authorities
            .iter()
            .any(|authority| authority.span.made == self.signed_by && authority.span.ends > now_ms);
        signer && self.names == names && self.serving.ends > now_ms && self.serving.made <= now_ms + DAY_MS
    }

    fn anew(names: &[String], now_ms: i64) -> Result<Self, rcgen::Error> {
        let (authority, authority_key) = authority(now_ms)?;
        let span = authority.span;
        let mut made = Self {
            authorities: vec![authority],
            authority_key,
            serving: span,
            signed_by: 0,
            names: names.to_vec(),
            certificate: String::new(),
            key: String::new(),
        };
        made.sign(span, now_ms)?;
        Ok(made)
    }

    /// A new certificate of the newest authority.
    fn sign(&mut self, newest: Span, now_ms: i64) -> Result<(), rcgen::Error> {
        let authority = authority_params(newest)?;
        let issuer = Issuer::from_params(&authority, KeyPair::from_pem(&self.authority_key)?);
        let serving = Span::of(now_ms, SERVING_MS.min(newest.ends - now_ms));
        let mut params = CertificateParams::new(self.names.clone())?;
        params.distinguished_name = named("waybill-operator webhook");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        lasts(&mut params, serving);
        let key = KeyPair::generate()?;
        self.certificate = params.signed_by(&key, &issuer)?.pem();
        self.key = key.serialize_pem();
        self.serving = serving;
        self.signed_by = newest.made;
        Ok(())
    }
}

fn authority(now_ms: i64) -> Result<(Authority, String), rcgen::Error> {
    let span = Span::of(now_ms, AUTHORITY_MS);
    let key = KeyPair::generate()?;
    let pem = authority_params(span)?.self_signed(&key)?.pem();
    Ok((Authority { span, pem }, key.serialize_pem()))
}

/// The same for the same span, so that a certificate can be signed without reading that of the authority.
fn authority_params(span: Span) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    // Each has a name of its own: a certificate names the one that signed it.
    params.distinguished_name = named(&format!("waybill-operator authority {}", span.made));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    lasts(&mut params, span);
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}

fn lasts(params: &mut CertificateParams, span: Span) {
    let time =
        |ms: i64| OffsetDateTime::from_unix_timestamp(ms.div_euclid(1_000)).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    params.not_before = time(span.made - SKEW_MS);
    params.not_after = time(span.ends);
}
