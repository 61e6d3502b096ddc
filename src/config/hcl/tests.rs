use super::*;
use proptest::prelude::*;

fn check(text: &str, json: &str) {
    let got = parse(text)
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .to_json();
    assert_eq!(
        got,
        serde_json::from_str::<serde_json::Value>(json).unwrap(),
        "{text}"
    );
}

fn check_err(text: &str, wanted: &str) {
    let err = parse(text).unwrap_err().to_string();
    assert!(err.contains(wanted), "{text}: {err}");
}

#[test]
fn hcl1_as_operators_write_it() {
    check(
        "connect { enabled = true\n other = 1 }",
        r#"{"connect":{"enabled":true,"other":1}}"#,
    );
    check(
        "\"ports\" { grpc = 0x10, http = 1 }",
        r#"{"ports":{"grpc":16,"http":1}}"#,
    );
    check(
        "a = 010 b = -5 c = 1.5 d = 1e3",
        r#"{"a":8,"b":-5,"c":1.5,"d":1000.0}"#,
    );
    check(
        "s { n = \"a\" }\ns { n = \"b\" }",
        r#"{"s":[{"n":"a"},{"n":"b"}]}"#,
    );
    check(
        "s = [{ n = \"a\" }, { n = \"b\" },]",
        r#"{"s":[{"n":"a"},{"n":"b"}]}"#,
    );
    check(
        "service \"web\" { policy = \"read\" }",
        r#"{"service":{"web":{"policy":"read"}}}"#,
    );
    check("a = 1\na = 2", r#"{"a":2}"#);
    check("# c\n// c\n/* c\n */ a = \"x\" # c", r#"{"a":"x"}"#);
    check("a : \"x\"\r\nb = []\r\n", r#"{"a":"x","b":[]}"#);
    check("", "{}");
}

#[test]
fn strings_and_heredocs() {
    check(
        r#"a = "q\"\\\n\t\u00e9\x41""#,
        r#"{"a":"q\"\\\n\té\u0041"}"#,
    );
    check(
        r#"a = "{{ GetInterfaceIP \"eth0\" }}""#,
        r#"{"a":"{{ GetInterfaceIP \"eth0\" }}"}"#,
    );
    check(r#"a = "${ f("x") }""#, r#"{"a":"${ f(\"x\") }"}"#);
    check(
        "a = <<EOF\n one\ntwo\nEOF\nb = 1",
        r#"{"a":" one\ntwo\n","b":1}"#,
    );
    check("a = <<-E\n  one\n    two\n  E\n", r#"{"a":"one\n  two\n"}"#);
}

#[test]
fn json_when_it_begins_with_a_brace() {
    check(
        r#" {"a": [1, 2.5, null, "\ud83d\ude00"], "b": {}} "#,
        r#"{"a":[1,2.5,null,"😀"],"b":{}}"#,
    );
    check_err(r#"{"a": 1,}"#, "At 1:9: a quoted key expected");
    check_err("{\n \"a\" 1}", "At 2:6: ':' expected");
    check_err(r#"{"a": 01}"#, "not a number");
}

#[test]
fn errors_name_the_place() {
    check_err("a = null", "Unknown token: IDENT null");
    check_err("a = 1\nb {\n c = 2\n", "expected closing RBRACE");
    check_err("a = 10s", "10s is not a number; quote it");
    check_err(
        "token = 11111111-2222-3333",
        "11111111\u{2026} is not a number",
    );
    check_err("a = \"x\nb = 1", "literal not terminated");
    check_err("a = [1 2]", "',' or ']' expected");
    check_err("a = [", "list not terminated");
    check_err("/* x", "comment not terminated");
    check_err("a = <<X\n1\n", "heredoc not terminated");
    check_err("}", "a key expected");
}

#[test]
fn lines_are_kept() {
    let root = parse("a = 1\n\nb {\n  c = [\n 1,\n 2]\n}").unwrap();
    let Value::Object(entries) = &root.value else {
        panic!("{root:?}")
    };
    assert_eq!(entries[1].line, 3);
    let inner = entries[1].node.as_block().unwrap();
    assert_eq!(inner[0].line, 4);
    let Value::List(items) = &inner[0].node.value else {
        panic!("{inner:?}")
    };
    assert_eq!(items[1].line, 6);
}

#[test]
fn nesting_is_bounded() {
    for open in ["a = [", "a {", "a \"b\" "] {
        assert!(parse(open).is_err());
    }
    check_err(&format!("a = {}", "[".repeat(100_000)), "deeper");
    check_err(&"a { ".repeat(100_000), "deeper");
    check_err(&"a ".repeat(100_000), "deeper");
    check_err(&format!("{{\"a\": {}", "[".repeat(100_000)), "deeper");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
        let _ = parse(&text);
    }

    #[test]
    fn texts_like_hcl_are_read_or_refused(text in "[a{}\\[\\]=\", \n\\\\<E#/*$0x.-]{0,80}") {
        let _ = parse(&text);
    }

    #[test]
    fn json_is_read_as_serde_reads_it(values in proptest::collection::btree_map("[a-z]{1,6}", ("\\PC{0,12}", any::<i64>()), 0..6)) {
        let text = serde_json::to_string_pretty(&values).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(parse(&text).unwrap().to_json(), expected);
    }
}
