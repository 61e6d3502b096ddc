use super::*;
use proptest::prelude::*;
use serde_json::json;

fn holds(filter: &str) -> bool {
    let instance = json!({
        "Node": {"Node": "n1", "Meta": {"os": "linux", "a b": "x"}},
        "Service": {
            "Service": "web", "Port": 8080, "Tags": ["blue", "v1"], "Meta": {"version": "v1", "empty": ""},
            "Connect": {"Native": true}, "Weights": null
        },
        "Checks": [{"Status": "passing", "Name": "a"}, {"Status": "warning", "Name": "b"}]
    });
    Filter::parse(filter).unwrap().matches(&instance)
}

#[test]
fn expressions_select_as_in_consul() {
    for (filter, expected) in [
        ("Service.Meta.version == v1", true),
        ("Service.Meta.version == \"v1\"", true),
        ("Service.Meta.version == `v2`", false),
        ("Service.Meta.version != v1", false),
        ("Service.Meta.none == v1", false),
        ("Service.Meta.none != v1", true),
        ("Service.Meta.none is empty", true),
        ("Service.Meta.none is not empty", false),
        ("Service.Meta.empty is empty", true),
        ("Service.Weights is empty", true),
        ("Node.Meta[\"a b\"] == x", true),
        ("Node.Meta.os matches \"^lin\"", true),
        ("Node.Meta.os not matches \"^lin\"", false),
        ("Service.Port == 8080", true),
        ("Service.Port != 8080", false),
        ("Service.Port == \"8080\"", true),
        ("Service.Connect.Native == true", true),
        ("Service.Connect.Native == false", false),
        ("blue in Service.Tags", true),
        ("red not in Service.Tags", true),
        ("Service.Tags contains blue", true),
        ("Service.Tags not contains blue", false),
        ("os in Node.Meta", true),
        ("\"eb\" in Service.Service", true),
        ("Service.Tags is not empty", true),
        ("Checks.Status == warning", true),
        ("Checks.Status == critical", false),
        ("not Checks.Status == critical", true),
        (
            "Service.Service == web and (Node.Node == n2 or Node.Node == n1)",
            true,
        ),
        (
            "Node.Node == n2 or Node.Node == n1 and Service.Service == db",
            false,
        ),
        ("not (Node.Node == n1)", false),
        ("not not Node.Node==n1", true),
        ("Service.Port contains 8", false),
        ("android == os or Node.Node == n1", true),
    ] {
        assert_eq!(holds(filter), expected, "{filter}");
    }
}

#[test]
fn what_is_no_expression_is_refused_with_the_place() {
    for (filter, at) in [
        ("", 0),
        ("Service", 7),
        ("Service ==", 10),
        ("Service == v1 v2", 14),
        ("(Service == v1", 14),
        ("\"a\" == b", 0),
        ("a == \"b", 7),
        ("a in \"b\"", 5),
        ("a. == b", 2),
        ("a == 1x", 5),
        ("Meta[x] == 1", 5),
    ] {
        let error = Filter::parse(filter).unwrap_err();
        assert!(
            matches!(error, FilterError::Syntax { at: found, .. } if found == at),
            "{filter}: {error:?}"
        );
    }
    assert_eq!(
        Filter::parse("a matches \"(\"").unwrap_err(),
        FilterError::Regex("(".to_owned())
    );
    let long = format!("a == {}", "b".repeat(MAX_LEN));
    assert!(matches!(Filter::parse(&long), Err(FilterError::TooLong(_))));
    for deep in ["(".repeat(1000), "not ".repeat(1000)] {
        assert_eq!(Filter::parse(&deep).unwrap_err(), FilterError::TooDeep);
    }
}

#[test]
fn roots_are_the_first_components() {
    let filter = Filter::parse("a.b == 1 and (x in c or not d is empty)").unwrap();
    assert_eq!(filter.roots(), ["a", "c", "d"]);
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in r#"[a-zA-Z.\[\]"`() =!0-9-]{0,60}|\PC{0,40}"#) {
        if let Ok(filter) = Filter::parse(&text) {
            filter.matches(&json!({"a": [{"b": null}, 1, "x"]}));
        }
    }

    #[test]
    fn quoted_values_are_compared_as_they_are(value in "[^`]{0,20}") {
        let filter = Filter::parse(&format!("a == `{value}`")).unwrap();
        let object = json!({"a": value});
        prop_assert!(filter.matches(&object));
    }
}
