//! The parts of a message, in the order of the command line.

use std::io::Read;
use std::path::Path;

use attache::model::{Json, Part};
use clap::ArgMatches;

use crate::args::{PartFlags, SendArgs};
use crate::error::{CliError, CliResult};

/// File size above which a URL is suggested instead, in bytes.
const WARN_ABOVE_BYTES: u64 = 5 << 20;

/// A part flag, or the positional text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PartArg {
    Positional(String),
    Text(String),
    File(String),
    Data(String),
    MediaType(String),
}

/// The parts of a command line, in order.
pub(crate) struct PartArgs(Vec<PartArg>);

impl PartArgs {
    /// Collects the part flags; `matches` has their positions.
    pub(crate) fn new(send: &SendArgs, matches: &ArgMatches) -> Self {
        let PartFlags {
            text,
            file,
            data,
            media_type,
        } = &send.parts;
        let mut args: Vec<(usize, PartArg)> = Vec::new();
        let mut add = |name, values: &[String], make: fn(String) -> PartArg| {
            let positions = matches.indices_of(name).into_iter().flatten();
            args.extend(positions.zip(values.iter().cloned().map(make)));
        };
        add("text", text, PartArg::Text);
        add("file", file, PartArg::File);
        add("data", data, PartArg::Data);
        add("media_type", media_type, PartArg::MediaType);
        if let (Some(position), Some(text)) = (matches.index_of("message"), &send.message) {
            args.push((position, PartArg::Positional(text.clone())));
        }
        args.sort_by_key(|(position, _)| *position);
        Self(args.into_iter().map(|(_, arg)| arg).collect())
    }

    /// Reads files and stdin, and returns the parts; `warn` receives warnings.
    pub(crate) fn read(
        self,
        stdin: &mut dyn Read,
        warn: &mut dyn FnMut(String),
    ) -> CliResult<Vec<Part>> {
        let mut parts = Vec::new();
        let mut stdin = Some(stdin);
        for (arg, media_type) in bind_media_types(self.0)? {
            let part = match arg {
                PartArg::Positional(named) if named == "-" => {
                    Part::text(read_stdin("-", &mut stdin)?)
                }
                PartArg::Positional(text) | PartArg::Text(text) => Part::text(text),
                PartArg::File(named) => file_part(&named, media_type.as_deref(), warn)?,
                PartArg::Data(named) => data_part(&named, &mut stdin)?,
                PartArg::MediaType(_) => continue,
            };
            parts.push(match media_type {
                Some(media_type) => part.with_media_type(media_type),
                None => part,
            });
        }
        if parts.is_empty() {
            return Err(CliError::usage("there is nothing to send")
                .hint("give a text: attache send -a <agent> 'hello'"));
        }
        Ok(parts)
    }
}

/// Binds each media type to the part flag before it.
fn bind_media_types(args: Vec<PartArg>) -> CliResult<Vec<(PartArg, Option<String>)>> {
    let mut bound: Vec<(PartArg, Option<String>)> = Vec::new();
    for arg in args {
        let PartArg::MediaType(media_type) = arg else {
            bound.push((arg, None));
            continue;
        };
        let flag = format!("--media-type {media_type}");
        match bound.last_mut() {
            None => {
                return Err(CliError::usage(format!(
                    "{flag} needs a part flag before it"
                )));
            }
            Some((PartArg::Positional(_), _)) => {
                return Err(
                    CliError::usage(format!("{flag} follows the positional text")).hint(
                        "give the text as --text, or move the media type behind its part flag",
                    ),
                );
            }
            Some((_, Some(first))) => {
                return Err(CliError::usage(format!(
                    "{flag} is the second for one part, after {first}"
                )));
            }
            Some((_, bound_type)) => *bound_type = Some(media_type),
        }
    }
    Ok(bound)
}

/// Reads a file, or refers to a URL. The type is guessed from the name if none is given.
pub(crate) fn file_part(
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
            "{named} has {} bytes; send large files by URL",
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

/// Guesses a media type by the file extension, if the user gives none.
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
