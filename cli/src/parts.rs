//! The parts of a message, in the order they were typed.

use std::io::Read;
use std::path::Path;

use attache::model::{Json, Part};
use clap::ArgMatches;

use crate::args::{PartFlags, SendArgs};
use crate::error::{CliError, CliResult};

/// What belongs into a url rather than into a message.
const WARN_ABOVE_BYTES: u64 = 5 << 20;

/// A part flag, or the text without one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PartArg {
    Plain(String),
    Text(String),
    File(String),
    Data(String),
    MediaType(String),
}

/// The parts that a command line names; `matches` knows the order.
pub(crate) struct PartArgs(Vec<PartArg>);

impl PartArgs {
    pub(crate) fn new(send: &SendArgs, matches: &ArgMatches) -> Self {
        let PartFlags {
            text,
            file,
            data,
            media_type,
        } = &send.parts;
        let mut all: Vec<(usize, PartArg)> = Vec::new();
        let mut add = |name, values: &[String], make: fn(String) -> PartArg| {
            let places = matches.indices_of(name).into_iter().flatten();
            all.extend(places.zip(values.iter().cloned().map(make)));
        };
        add("text", text, PartArg::Text);
        add("file", file, PartArg::File);
        add("data", data, PartArg::Data);
        add("media_type", media_type, PartArg::MediaType);
        if let (Some(place), Some(text)) = (matches.index_of("message"), &send.message) {
            all.push((place, PartArg::Plain(text.clone())));
        }
        all.sort_by_key(|(place, _)| *place);
        Self(all.into_iter().map(|(_, typed)| typed).collect())
    }

    /// Reads files and stdin; `warn` is told of what is better done otherwise.
    pub(crate) fn read(
        self,
        stdin: &mut dyn Read,
        warn: &mut dyn FnMut(String),
    ) -> CliResult<Vec<Part>> {
        let mut parts = Vec::new();
        let mut stdin = Some(stdin);
        for (typed, media_type) in bind_media_types(self.0)? {
            let part = match typed {
                PartArg::Plain(named) if named == "-" => Part::text(read_stdin("-", &mut stdin)?),
                PartArg::Plain(text) | PartArg::Text(text) => Part::text(text),
                PartArg::File(named) => file_part(&named, media_type.as_deref(), warn)?,
                PartArg::Data(named) => data_part(&named, &mut stdin)?,
                PartArg::MediaType(_) => continue,
            };
            parts.push(match media_type {
                Some(media_type) => part.with_media_type(media_type),
                None => part,
            });
        }
        match parts.is_empty() {
            true => Err(CliError::usage("there is nothing to send")
                .hint("say something: attache send -a <agent> 'hello'")),
            false => Ok(parts),
        }
    }
}

/// Each part with its media type, which stands behind its flag.
fn bind_media_types(typed: Vec<PartArg>) -> CliResult<Vec<(PartArg, Option<String>)>> {
    let mut bound: Vec<(PartArg, Option<String>)> = Vec::new();
    for one in typed {
        let PartArg::MediaType(media_type) = one else {
            bound.push((one, None));
            continue;
        };
        let what = format!("--media-type {media_type}");
        match bound.last_mut() {
            None => {
                return Err(CliError::usage(format!(
                    "{what} needs a part flag before it"
                )));
            }
            Some((PartArg::Plain(_), _)) => {
                return Err(
                    CliError::usage(format!("{what} follows a text without a flag"))
                        .hint("give the text as --text, or move the media type behind its part"),
                );
            }
            Some((_, Some(first))) => {
                return Err(CliError::usage(format!(
                    "{what} is the second for one part, after {first}"
                )));
            }
            Some((_, place)) => *place = Some(media_type),
        }
    }
    Ok(bound)
}

fn file_part(
    named: &str,
    media_type: Option<&str>,
    warn: &mut dyn FnMut(String),
) -> CliResult<Part> {
    if named.starts_with("http://") || named.starts_with("https://") {
        return Ok(Part::url(named));
    }
    let path = Path::new(named);
    let cannot = |error| CliError::usage(format!("--file {named}: {error}"));
    let bytes = std::fs::read(path).map_err(cannot)?;
    if bytes.len() as u64 > WARN_ABOVE_BYTES {
        warn(format!(
            "{named} has {} bytes; a large file is better sent by its url",
            bytes.len()
        ));
    }
    let part = Part::file(&bytes, media_type.unwrap_or_else(|| guess_media_type(path)));
    Ok(match path.file_name() {
        Some(name) => part.with_filename(name.to_string_lossy()),
        None => part,
    })
}

fn data_part(named: &str, stdin: &mut Option<&mut dyn Read>) -> CliResult<Part> {
    let text = match named {
        "-" => read_stdin("--data -", stdin)?,
        named => std::fs::read_to_string(named)
            .map_err(|error| CliError::usage(format!("--data {named}: {error}")))?,
    };
    let json =
        Json::parse(&text).map_err(|error| CliError::usage(format!("--data {named} {error}")))?;
    Ok(Part::data(json))
}

fn read_stdin(what: &str, stdin: &mut Option<&mut dyn Read>) -> CliResult<String> {
    let once = || CliError::usage(format!("{what} can be given once: stdin is read once"));
    let mut text = String::new();
    let read = stdin.take().ok_or_else(once)?.read_to_string(&mut text);
    read.map_err(|error| CliError::usage(format!("{what}: {error}")))?;
    Ok(text)
}

/// By its extension; only where the caller said nothing.
fn guess_media_type(path: &Path) -> &'static str {
    let extension = path
        .extension()
        .map(|it| it.to_string_lossy().to_ascii_lowercase())
        .unwrap_or_default();
    match extension.as_str() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "js" => "text/javascript",
        "json" => "application/json",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => "application/octet-stream",
    }
}
