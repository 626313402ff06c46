//! Webhooks.

use super::FORMAT;
use super::bytes::{Corrupt, Read, Reader, Writer};
use crate::model::{AuthenticationInfo, PushConfig, Secret, Version};
use crate::store::Registered;

/// A webhook.
pub(in crate::store) fn write_config(registered: &Registered) -> Vec<u8> {
    let Registered { config, version } = registered;
    let mut out = Writer::behind(&[], FORMAT, 0);
    out.text(version.as_str());
    out.maybe_text(config.tenant.as_deref());
    out.maybe_text(config.id.as_ref().map(AsRef::as_ref));
    out.maybe_text(config.task_id.as_ref().map(AsRef::as_ref));
    out.text(&config.url);
    out.maybe_text(config.token.as_ref().map(Secret::expose));
    out.maybe(config.authentication.as_ref(), |out, info| {
        out.text(&info.scheme);
        out.maybe_text(info.credentials.as_ref().map(Secret::expose));
    });
    out.list(&config.other_schemes, |out, scheme| out.text(scheme));
    out.list(&config.headers, |out, (name, value)| {
        out.text(name);
        out.text(value.expose());
    });
    out.into_bytes()
}

/// The reverse of [`write_config`].
pub(in crate::store) fn read_config(bytes: &[u8]) -> Read<Registered> {
    let mut from = Reader::new(bytes, FORMAT)?;
    let name = from.text()?;
    let version = Version::ALL
        .into_iter()
        .find(|version| version.as_str() == name);
    let version = version.ok_or(Corrupt("an unknown version of the protocol"))?;
    let config = PushConfig {
        tenant: from.maybe_text()?.map(str::to_owned),
        id: from.maybe_text()?.map(Into::into),
        task_id: from.maybe_text()?.map(Into::into),
        url: from.text()?.to_owned(),
        token: from.maybe_text()?.map(Secret::from),
        authentication: from.maybe(|from| {
            let scheme = from.text()?.to_owned();
            Ok(AuthenticationInfo {
                scheme,
                credentials: from.maybe_text()?.map(Secret::from),
            })
        })?,
        other_schemes: from.list(|from| from.text().map(str::to_owned))?,
        headers: from.list(|from| Ok((from.text()?.to_owned(), from.text()?.into())))?,
    };
    from.end(Registered { config, version })
}
