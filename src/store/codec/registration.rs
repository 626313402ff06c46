//! Webhook registrations. They contain credentials, which the store encrypts after encoding.

use super::decoder::LogDecoder;
use super::encoder::LogEncoder;
use super::event::{decode_version, encode_version};
use super::{DecodeResult, PLAIN_FORMAT};
use crate::model::{AuthenticationInfo, PushConfig, Secret};
use crate::store::PushRegistration;

/// Encodes a webhook registration.
pub(in crate::store) fn encode_registration(registration: &PushRegistration) -> Vec<u8> {
    let PushRegistration { config, version } = registration;
    let mut out = LogEncoder::new(PLAIN_FORMAT, 0);
    encode_version(&mut out, *version);
    out.optional_text(config.tenant.as_deref());
    out.optional_text(config.id.as_ref().map(AsRef::as_ref));
    out.optional_text(config.task_id.as_ref().map(AsRef::as_ref));
    out.text(&config.url);
    out.optional_text(config.token.as_ref().map(Secret::expose));
    out.optional(config.authentication.as_ref(), |out, info| {
        out.text(&info.scheme);
        out.optional_text(info.credentials.as_ref().map(Secret::expose));
    });
    out.list(&config.other_schemes, |out, scheme| out.text(scheme));
    out.list(&config.headers, |out, (name, value)| {
        out.text(name);
        out.text(value.expose());
    });
    out.into_bytes()
}

/// Decodes a webhook registration.
pub(in crate::store) fn decode_registration(bytes: &[u8]) -> DecodeResult<PushRegistration> {
    let mut from = LogDecoder::new(bytes, PLAIN_FORMAT)?;
    let version = decode_version(&mut from)?;
    let config = PushConfig {
        tenant: from.optional_text()?.map(str::to_owned),
        id: from.optional_text()?.map(Into::into),
        task_id: from.optional_text()?.map(Into::into),
        url: from.text()?.to_owned(),
        token: from.optional_text()?.map(Secret::from),
        authentication: from.optional(|from| {
            let scheme = from.text()?.to_owned();
            Ok(AuthenticationInfo {
                scheme,
                credentials: from.optional_text()?.map(Secret::from),
            })
        })?,
        other_schemes: from.list(|from| from.text().map(str::to_owned))?,
        headers: from.list(|from| Ok((from.text()?.to_owned(), from.text()?.into())))?,
    };
    from.finish(PushRegistration { config, version })
}
