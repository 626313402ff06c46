//! Parsers of the values of settings.

use std::time::Duration;

use attache::FileEncoding;
use attache::model::{Binding, Object, Secret};

use super::setting::Setting;
use super::{OutputFormat, duration, flags};
use crate::error::CliResult;

pub(crate) fn parse_bool(setting: &Setting) -> CliResult<bool> {
    match setting.text().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" | "" => Ok(false),
        _ => Err(setting.usage_error("must be true or false")),
    }
}

pub(super) fn parse_format(setting: &Setting) -> CliResult<OutputFormat> {
    let name = setting.text();
    let format = OutputFormat::from_name(&name).ok_or_else(|| {
        setting
            .usage_error("must be text, json, plain or pretty")
            .hint("for one JSON object per event: -o json --stream")
    })?;
    // Other programs read the variable of the contract too.
    if setting.variable() == flags::OUTPUT.variable().as_deref() && !format.is_of_contract() {
        return Err(setting
            .usage_error("must be text or json")
            .hint(format!("set ATTACHE_OUTPUT={name} instead")));
    }
    Ok(format)
}

pub(super) fn parse_duration(setting: &Setting) -> CliResult<Duration> {
    duration::parse(&setting.text())
        .ok_or_else(|| setting.usage_error("must be a duration such as 500ms, 2s or 1m30s"))
}

/// Parses bindings into the names that cards use. The URI of an unknown binding is kept unchanged.
pub(super) fn parse_transports(setting: &Setting) -> CliResult<Vec<String>> {
    let parse = |word: &String| {
        let word = word.trim();
        match word.to_ascii_lowercase().as_str() {
            "jsonrpc" | "json-rpc" => Ok(Binding::JsonRpc.as_str().to_owned()),
            "http+json" | "rest" => Ok(Binding::HttpJson.as_str().to_owned()),
            "grpc" => Ok(Binding::Grpc.as_str().to_owned()),
            _ if word.contains("://") || word.starts_with("urn:") => Ok(word.to_owned()),
            _ => {
                Err(setting.usage_error("must be jsonrpc, http+json, grpc or the URI of a binding"))
            }
        }
    };
    setting.values.iter().map(parse).collect()
}

pub(super) fn parse_version(setting: &Setting) -> CliResult<String> {
    let text = setting.text();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    if text == "auto" || text.split('.').all(is_number) {
        Ok(text)
    } else {
        Err(setting.usage_error("must be a version such as 1.0, or auto"))
    }
}

pub(super) fn parse_file_encoding(setting: &Setting) -> CliResult<FileEncoding> {
    match setting.text().as_str() {
        "auto" => Ok(FileEncoding::Auto),
        "raw" => Ok(FileEncoding::Raw),
        "base64" => Ok(FileEncoding::Base64),
        _ => Err(setting.usage_error("must be auto, raw or base64")),
    }
}

/// Parses `NAME:VALUE` or `NAME=VALUE`. Neither separator can occur in the name of a header.
pub(super) fn parse_service_params(setting: &Setting) -> CliResult<Vec<(String, Secret)>> {
    let parse = |pair: &String| {
        let (name, value) = pair
            .split_once([':', '='])
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| setting.usage_error("must be NAME:VALUE"))?;
        Ok((name.trim().to_owned(), Secret::from(value.trim())))
    };
    setting.values.iter().map(parse).collect()
}

pub(super) fn parse_metadata(setting: &Setting) -> CliResult<Object> {
    serde_json::from_str(&setting.text()).map_err(|_| setting.usage_error("must be a JSON object"))
}
