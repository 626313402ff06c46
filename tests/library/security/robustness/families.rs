//! Families of hostile inputs, each just under 64 KiB.

const SIZE: usize = 64 * 1024;

/// Fills the space between two texts with as many items as fit.
fn fill(before: &str, item: impl Fn(usize) -> String, between: &str, after: &str) -> Vec<u8> {
    let mut out = before.to_owned();
    for number in 0.. {
        let item = item(number);
        if out.len() + item.len() + between.len() + after.len() > SIZE {
            break;
        }
        if number > 0 {
            out.push_str(between);
        }
        out.push_str(&item);
    }
    out.push_str(after);
    out.into_bytes()
}

fn same(item: &str) -> impl Fn(usize) -> String {
    move |_| item.to_owned()
}

/// Text around the parts of a message in each request form.
const MESSAGES: [(&str, &str); 2] = [
    (
        r#"{"message":{"messageId":"m","role":"user","parts":["#,
        "]}}",
    ),
    (
        r#"{"kind":"message","messageId":"m","role":"agent","parts":["#,
        "]}",
    ),
];

/// Inputs by name.
pub(super) type Families = Vec<(&'static str, Vec<u8>)>;

pub(super) fn nested() -> Families {
    vec![
        ("open brackets", fill("", same("["), "", "")),
        ("open objects", fill("", same(r#"{"a":"#), "", "")),
        ("nested messages", fill("", same(r#"{"message":"#), "", "")),
        (
            "nested registrations",
            fill("", same(r#"{"pushNotificationConfig":"#), "", ""),
        ),
        (
            "nested in metadata",
            fill(r#"{"id":"t","metadata":"#, same(r#"{"a":"#), "", ""),
        ),
        (
            "brackets in a string",
            fill(r#"{"id":""#, same("[{"), "", r#""}"#),
        ),
        (
            "many small arrays",
            fill(r#"{"metadata":{"a":["#, same("[]"), ",", "]}}"),
        ),
    ]
}

pub(super) fn members() -> Families {
    let named = |number: usize| format!(r#""n{number}":1"#);
    vec![
        ("one unknown name", fill("{", same(r#""x":1"#), ",", "}")),
        ("distinct unknown names", fill("{", named, ",", "}")),
        ("one known name", fill("{", same(r#""id":"t""#), ",", "}")),
        ("one kind", fill("{", same(r#""kind":"task""#), ",", "}")),
        (
            "both spellings",
            fill("{", same(r#""taskId":"t","task_id":"t""#), ",", "}"),
        ),
        (
            "distinct names in metadata",
            fill(r#"{"id":"t","metadata":{"#, named, ",", "}}"),
        ),
        (
            "one name in metadata",
            fill(r#"{"id":"t","metadata":{"#, same(r#""a":1"#), ",", "}}"),
        ),
        (
            "distinct headers",
            fill(
                r#"{"taskId":"t","url":"u","headers":{"#,
                |number| format!(r#""n{number}":"""#),
                ",",
                "}}",
            ),
        ),
        (
            "escaped names",
            fill("{", |number| format!(r#""\u0041{number}":1"#), ",", "}"),
        ),
        (
            "distinct details",
            fill(r#"{"code":1,"data":{"#, named, ",", "}}"),
        ),
        (
            "many violations",
            fill(
                r#"{"code":-32602,"data":[{"@type":"google.rpc.BadRequest","fieldViolations":["#,
                same(r#"{"field":"a"}"#),
                ",",
                "]}]}",
            ),
        ),
    ]
}

pub(super) fn parts() -> Families {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":["#;
    let mut all = vec![(
        "a call with many parts",
        fill(call, same(r#"{"kind":"odd","text":""}"#), ",", "]}}}"),
    )];
    for (before, after) in MESSAGES {
        all.push((
            "empty texts",
            fill(before, same(r#"{"text":""}"#), ",", after),
        ));
        all.push((
            "parts without content",
            fill(before, same("{}"), ",", after),
        ));
        all.push((
            "parts of wrong type",
            fill(before, same(r#"{"kind":"file","file":5}"#), ",", after),
        ));
        let members: Vec<_> = (0..200).map(|number| format!(r#""n{number}":1"#)).collect();
        let odd = format!(r#"{{"kind":"odd",{}}}"#, members.join(","));
        all.push((
            "odd kinds with many members",
            fill(before, same(&odd), ",", after),
        ));
        let one = format!(r#"{before}{{"kind":"odd","#);
        all.push((
            "one odd kind",
            fill(&one, |n| format!(r#""n{n}":1"#), ",", &format!("}}{after}")),
        ));
        let one =
            format!(r#"{before}{{"kind":"data","metadata":{{"data_part_compat":true}},"data":{{"#);
        all.push((
            "wrapped data",
            fill(
                &one,
                |n| format!(r#""n{n}":1"#),
                ",",
                &format!("}}}}{after}"),
            ),
        ));
        let text = format!(r#"{before}{{"text":""#);
        all.push((
            "escapes",
            fill(&text, same(r"\u00e9"), "", &format!(r#""}}{after}"#)),
        ));
        all.push((
            "surrogate pairs",
            fill(&text, same(r"\ud83d\ude00"), "", &format!(r#""}}{after}"#)),
        ));
        all.push((
            "half characters",
            fill(&text, same(r"\ud83d"), "", &format!(r#""}}{after}"#)),
        ));
        all.push((
            "backslashes",
            fill(&text, same(r"\\"), "", &format!(r#""}}{after}"#)),
        ));
        let raw = format!(r#"{before}{{"raw":""#);
        all.push((
            "bytes",
            fill(&raw, same("_-8="), "", &format!(r#""}}{after}"#)),
        ));
    }
    all
}

pub(super) fn numbers() -> Families {
    vec![
        (
            "a long number",
            fill(r#"{"historyLength":"#, same("9"), "", "}"),
        ),
        (
            "a long fraction",
            fill(r#"{"historyLength":0."#, same("0"), "", "1}"),
        ),
        (
            "a long exponent",
            fill(r#"{"pageSize":1e"#, same("9"), "", "}"),
        ),
        (
            "a long number as text",
            fill(r#"{"historyLength":""#, same("9"), "", r#""}"#),
        ),
        (
            "a long id",
            fill(
                r#"{"jsonrpc":"2.0","method":"GetTask","id":"#,
                same("9"),
                "",
                "}",
            ),
        ),
        ("a long code", fill(r#"{"code":"#, same("9"), "", "}")),
        (
            "large numbers",
            fill(r#"{"metadata":{"a":["#, same("1e400"), ",", "]}}"),
        ),
        (
            "a long time",
            fill(
                r#"{"timestamp":"2026-03-14T09:26:53."#,
                same("0"),
                "",
                r#"Z"}"#,
            ),
        ),
    ]
}

pub(super) fn cards() -> Families {
    let flows = r#"{"type":"oauth2","flows":{"implicit":{},"password":{},"clientCredentials":{}}}"#;
    let flowing = |number: usize| format!(r#""{number}":{flows}"#);
    let names: Vec<_> = (0..200).map(|number| format!(r#""{number}":[]"#)).collect();
    let split = format!(r#"}},"security":[{{{}}}]}}"#, names.join(","));
    vec![
        (
            "schemes",
            fill(
                r#"{"securitySchemes":{"#,
                |n| format!(r#""{n}":{{"type":"http"}}"#),
                ",",
                "}}",
            ),
        ),
        (
            "schemes of no kind",
            fill(
                r#"{"securitySchemes":{"#,
                |n| format!(r#""{n}":{{}}"#),
                ",",
                "}}",
            ),
        ),
        (
            "a scheme with a long name",
            fill(r#"{"securitySchemes":{""#, same(r"\n"), "", r#"":5}}"#),
        ),
        (
            "many flows, all needed",
            fill(r#"{"securitySchemes":{"#, flowing, ",", &split),
        ),
        (
            "needs of one",
            fill(r#"{"security":[{"#, |n| format!(r#""{n}":[]"#), ",", "}]}"),
        ),
        (
            "needs of many",
            fill(r#"{"security":["#, same(r#"{"a":[]}"#), ",", "]}"),
        ),
        (
            "scopes",
            fill(
                r#"{"securityRequirements":[{"schemes":{"a":["#,
                same(r#""""#),
                ",",
                "]}}]}",
            ),
        ),
        (
            "interfaces",
            fill(
                r#"{"url":"u","additionalInterfaces":["#,
                same(r#"{"url":"u"}"#),
                ",",
                "]}",
            ),
        ),
        ("skills", fill(r#"{"skills":["#, same("{}"), ",", "]}")),
        (
            "extensions",
            fill(
                r#"{"capabilities":{"extensions":["#,
                same(r#"{"uri":"u"}"#),
                ",",
                "]}}",
            ),
        ),
        (
            "old authentication",
            fill(
                r#"{"authentication":{"schemes":["#,
                same(r#""a""#),
                ",",
                "]}}",
            ),
        ),
    ]
}

pub(super) fn lines() -> Families {
    vec![
        ("empty data lines", fill("", same("data:\n"), "", "\n")),
        ("events", fill("", same("data:x\n\n"), "", "")),
        (
            "events under a long id",
            fill(
                &format!("id:{}\n", "i".repeat(20_000)),
                same("data:x\n\n"),
                "",
                "",
            ),
        ),
        ("line ends", fill("", same("\r"), "", "")),
        ("one line", fill("data:", same("x"), "", "")),
        ("slashes", fill("/tasks", same("/"), "", "")),
        ("encoded slashes", fill("/tasks/", same("%2F"), "", "")),
        ("verbs", fill("/tasks/a", same(":cancel"), "", "")),
        ("one parameter", fill("", same("pageSize=1"), "&", "")),
        (
            "distinct parameters",
            fill("", |number| format!("n{number}=1"), "&", ""),
        ),
        ("versions", fill("", same("1.0"), ",", "")),
        (
            "unlike versions",
            fill("", |number| format!("1.{number}"), ",", ""),
        ),
        ("control characters", fill("", same("\u{1}"), "", "")),
        ("zeros", vec![0; SIZE]),
        ("not UTF-8", vec![0xff; SIZE]),
    ]
}
