//! `attache doctor`: finds out why an agent does not answer, and which flags work.

use crate::args::DoctorArgs;
use crate::doctor::{self, Diagnosis, Diagnostic, DiagnosticStatus};
use crate::error::CliResult;
use crate::output::{Output, TextPage, line};
use crate::reference;
use crate::settings::Settings;
use crate::terminal::{Paint, wrap};

/// Exit code if no call of the agent works.
const EXIT_UNUSABLE: u8 = 1;
/// Width of the column of labels.
const LABEL_WIDTH: usize = "Interface".len();

pub(crate) async fn run(args: &DoctorArgs, settings: &Settings, out: &mut Output) -> CliResult<u8> {
    reference::card_url(settings)?;
    let message = (!args.no_message).then_some(args.message.as_str());
    if !out.is_json() && !out.is_pretty() {
        let mut page = TextPage::new(false);
        page.add_field("Agent", &doctor::agent_reference(settings));
        out.print_page(&page)?;
    }
    let diagnosis = doctor::diagnose(settings, message, out, &mut print).await?;
    print_result(&diagnosis, out)?;
    Ok(if diagnosis.works { 0 } else { EXIT_UNUSABLE })
}

/// Prints a step when its result is known. JSON is printed at the end.
fn print(diagnostic: &Diagnostic, out: &mut Output) -> CliResult {
    if out.is_json() {
        return Ok(());
    }
    if out.is_pretty() {
        return print_pretty(diagnostic, out);
    }
    let status = match diagnostic.status {
        DiagnosticStatus::Ok => "ok",
        DiagnosticStatus::Warning => "warning",
        DiagnosticStatus::Failed => "failed",
        DiagnosticStatus::Skipped => "skipped",
    };
    let mut page = TextPage::new(false);
    let message = &diagnostic.message;
    page.add_field(diagnostic.step.label(), &format!("{status}, {message}"));
    if let Some(hint) = &diagnostic.hint {
        page.add_field("Hint", hint);
    }
    out.print_page(&page)
}

fn print_pretty(diagnostic: &Diagnostic, out: &mut Output) -> CliResult {
    let style = out.stdout_style();
    let (symbol, paint) = match diagnostic.status {
        DiagnosticStatus::Ok => ("✓", Paint::Green),
        DiagnosticStatus::Warning => ("!", Paint::Yellow),
        DiagnosticStatus::Failed => ("✗", Paint::Red),
        DiagnosticStatus::Skipped => ("·", Paint::Dim),
    };
    let indent = LABEL_WIDTH + 4;
    let width = style.text_width().saturating_sub(indent);
    let label = format!("{:<LABEL_WIDTH$}", diagnostic.step.label());
    let mut start = format!("{} {label}  ", style.paint(paint, symbol));
    for text in wrap(&line(&diagnostic.message), width) {
        out.print_line(&format!("{start}{text}"))?;
        start = " ".repeat(indent);
    }
    let hint = diagnostic.hint.as_deref().map(line).unwrap_or_default();
    let mut arrow = "→ ";
    for text in wrap(&hint, width.saturating_sub(2)) {
        let text = style.paint(paint, &format!("{arrow}{text}"));
        out.print_line(&format!("{}{text}", " ".repeat(indent)))?;
        arrow = "  ";
    }
    Ok(())
}

fn print_result(diagnosis: &Diagnosis, out: &mut Output) -> CliResult {
    if out.is_json() {
        return out.print_json(diagnosis);
    }
    if out.is_pretty() {
        let style = out.stdout_style();
        return match &diagnosis.command {
            Some(command) => {
                out.print_line("")?;
                out.print_line(&style.paint(Paint::Green, "✓ the agent can be called"))?;
                out.print_line(&format!("  {}", line(command)))
            }
            None => {
                out.print_line("")?;
                out.print_line(&style.paint(Paint::Red, "✗ the agent cannot be called"))
            }
        };
    }
    let mut page = TextPage::new(false);
    page.add_field("Works", if diagnosis.works { "yes" } else { "no" });
    if let Some(command) = &diagnosis.command {
        page.add_field("Use", command);
    }
    out.print_page(&page)
}
