"""What people are told holds no passwords."""

import pytest

from headwater.model.secrets import without_passwords


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("read.mqtt('mqtt://ann:s3cret@broker:1883/t', qos=7)", "read.mqtt('mqtt://ann:***@broker:1883/t', qos=7)"),
        ("mqtts://:p%40ss?x@h/t and http://a:b@c", "mqtts://:***@h/t and http://a:***@c"),
        ("read.mqtt(URL, username='ann', password='s3cret')", "read.mqtt(URL, username='ann', password='***')"),
        ('connect(db_password = f"it\\"s", port=5)', 'connect(db_password = f"***", port=5)'),
        ("{'password': 's3cret', 'n': 1}", "{'password': '***', 'n': 1}"),
        ("read.mqtt('mqtt://broker:1883/t/a@b') at 10:30", "read.mqtt('mqtt://broker:1883/t/a@b') at 10:30"),
        ("password_file='/run/secret' is a file", "password_file='/run/secret' is a file"),
    ],
)
def test_passwords_are_blotted_out_and_nothing_else(told: str, shown: str) -> None:
    assert without_passwords(told) == shown
