//! Conversion of MCP tool results into parts.

use attache::model::{Base64, Content, Json, Part};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// Converts a result into parts: texts, data, files and URLs of files.
pub(crate) fn into_parts(result: CallToolResult) -> Vec<Part> {
    let data = result.structured_content;
    // Servers repeat structured content as text, for clients that do not read it.
    let repeats_data = |text: &str| {
        data.as_ref().is_some_and(|data| {
            serde_json::from_str::<Value>(text).is_ok_and(|value| value == *data)
        })
    };
    let blocks = result.content.into_iter();
    let blocks = blocks
        .filter(|block| !matches!(block, ContentBlock::Text(text) if repeats_data(&text.text)));
    let mut parts: Vec<_> = blocks.filter_map(part).collect();
    parts.extend(data.map(|data| Part::data(Json::from(data))));
    parts
}

fn part(block: ContentBlock) -> Option<Part> {
    Some(match block {
        ContentBlock::Text(text) => Part::text(text.text),
        ContentBlock::Image(image) => file(&image.data, Some(image.mime_type))?,
        ContentBlock::Audio(audio) => file(&audio.data, Some(audio.mime_type))?,
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents {
                uri,
                mime_type,
                text,
                ..
            } => named(
                Part::text(text)
                    .with_media_type(mime_type.unwrap_or_else(|| "text/plain".to_owned())),
                &uri,
            ),
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => named(file(&blob, mime_type)?, &uri),
            _ => return None,
        },
        ContentBlock::ResourceLink(link) => {
            let part = Part::url(link.uri).with_filename(link.name);
            match link.mime_type {
                Some(media_type) => part.with_media_type(media_type),
                None => part,
            }
        }
        _ => return None,
    })
}

fn file(bytes: &str, media_type: Option<String>) -> Option<Part> {
    let media_type = media_type.unwrap_or_else(|| "application/octet-stream".to_owned());
    Some(Part::from(Content::Raw(Base64::parse(bytes).ok()?)).with_media_type(media_type))
}

fn named(part: Part, uri: &str) -> Part {
    match uri.rsplit('/').next().filter(|name| !name.is_empty()) {
        Some(name) => part.with_filename(name),
        None => part,
    }
}

/// Converts a result into text for a model, and the files that the text mentions.
pub(crate) fn into_text_and_files(result: CallToolResult) -> (String, Vec<Part>) {
    let mut lines = Vec::new();
    let mut files = Vec::new();
    for part in into_parts(result) {
        let name = part.filename().unwrap_or("unnamed");
        let media_type = part.media_type().unwrap_or("unknown type");
        match &part.content {
            Content::Text(text) => lines.push(text.clone()),
            Content::Data(data) => lines.push(data.get().to_owned()),
            Content::Url(url) => lines.push(format!("[file {name}, {media_type}, at {url}]")),
            Content::Raw(bytes) => {
                lines.push(format!(
                    "[file {name}, {media_type}, {} bytes, given to the caller]",
                    bytes.byte_len()
                ));
                files.push(part);
            }
        }
    }
    (lines.join("\n"), files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(blocks: Value, data: Option<Value>) -> CallToolResult {
        let mut result = json!({"content": blocks});
        if let Some(data) = data {
            result["structuredContent"] = data;
        }
        serde_json::from_value(result).unwrap()
    }

    #[test]
    fn texts_data_and_files_become_parts() {
        let blocks = json!([
            {"type": "text", "text": "{\"celsius\": 21}"},
            {"type": "text", "text": "mild"},
            {"type": "image", "data": "AAEC", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "demo://a/note.md", "mimeType": "text/markdown", "text": "# hi"}},
            {"type": "resource_link", "uri": "https://x.example/b", "name": "b", "mimeType": "text/csv"},
        ]);
        let converted = into_parts(result(blocks.clone(), Some(json!({"celsius": 21}))));
        assert_eq!(
            serde_json::to_value(&converted).unwrap(),
            json!([
                {"text": "mild"},
                {"raw": "AAEC", "mediaType": "image/png"},
                {"text": "# hi", "filename": "note.md", "mediaType": "text/markdown"},
                {"url": "https://x.example/b", "filename": "b", "mediaType": "text/csv"},
                {"data": {"celsius": 21}},
            ])
        );
        let (text, files) = into_text_and_files(result(blocks, Some(json!({"celsius": 21}))));
        assert_eq!(
            text,
            "mild\n[file unnamed, image/png, 3 bytes, given to the caller]\n# hi\n\
             [file b, text/csv, at https://x.example/b]\n{\"celsius\":21}"
        );
        assert_eq!(files.len(), 1);
    }
}
