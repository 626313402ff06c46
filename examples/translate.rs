//! Reads an A2A object or event of any version and writes it in another: `translate 1.0 <
//! event.json`.

use std::io::{Read, Write};
use std::process::ExitCode;

use attache::model::StreamResponse;
use attache::wire::{Dialect, read_event, write_event};

fn main() -> ExitCode {
    match translate(std::env::args().nth(1).as_deref()) {
        Ok(line) => match std::io::stdout().write_all(&line) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            eprintln!("translate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn translate(version: Option<&str>) -> Result<Vec<u8>, String> {
    let dialect = match version {
        Some("1.0") => Dialect::V1,
        Some("0.3") => Dialect::V03,
        Some("0.3-rest") => Dialect::V03Rest,
        _ => return Err("expected the version to write: 1.0, 0.3 or 0.3-rest".to_owned()),
    };
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    let event = read_event(&text, &Dialect::V1).map_err(|error| error.to_string())?;
    let closes =
        matches!(&event, StreamResponse::StatusUpdate(event) if event.status.state.is_terminal());
    let mut out = Vec::new();
    write_event(&mut out, &event, closes, &dialect);
    out.push(b'\n');
    Ok(out)
}
