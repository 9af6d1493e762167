"""The app email: a folder of .eml files per user, `emails/USER/SUBJECT.eml`, of the sender and of the recipient."""

from __future__ import annotations

from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Any

from .testbed import ActionError, Testbed, register_action

LINE = "-" * 50
PREVIEW = 20  # characters of a mail in the list
HOST = "example.com"
MOST_ALIKE = 1000  # mails of one subject in a mailbox


def read_mailbox(folder: Path) -> list[tuple[str, EmailMessage]]:
    """Return the mails of a folder with their file names, in alphabetical order."""
    if not folder.is_dir():
        return []
    return [(path.name, read_mail(path)) for path in sorted(folder.glob("*.eml")) if path.is_file()]


def read_mail(path: Path) -> EmailMessage:
    return BytesParser(EmailMessage, policy=policy.default).parsebytes(path.read_bytes())


def extract_body(message: EmailMessage) -> str:
    """Return the plain and HTML parts as text, without attachments."""
    parts = [part for part in message.walk() if part.get_content_type() in ("text/plain", "text/html")]
    return "\n".join(decode_part(part) for part in parts)


def decode_part(part: Any) -> str:
    data = part.get_payload(decode=True) or b""
    try:
        return str(data.decode(part.get_content_charset() or "utf-8", errors="replace"))
    except LookupError:  # an unknown character set
        return str(data.decode("utf-8", errors="replace"))


def format_mailbox(folder: Path, letters: int | None = PREVIEW) -> str:
    """Format the mails of a folder as OfficeBench does; `letters`: characters of each mail's text, None for all."""
    lines = []
    for name, message in read_mailbox(folder):
        text = extract_body(message)
        content = text if letters is None else f"{text[:letters]}..."
        lines.append(f"Email ID: {name}\n{format_head(message)}Content: {content}\n{LINE}\n")
    return "".join(lines)


def format_head(message: EmailMessage) -> str:
    return f"From: {message['From']}\nTo: {message['To']}\nSubject: {message['Subject']}\n"


def parse_account(address: str) -> str:
    return address.split("@")[0]


def choose_mail_path(testbed: Testbed, user: str, subject: str) -> Path:
    """Choose the path of a mail with that subject; an earlier mail with the same subject is never overwritten."""
    testbed.own("emails", user)  # the user's name is one
    for number in range(1, MOST_ALIKE):
        path = testbed.own(f"emails/{user}", subject if number == 1 else f"{subject} ({number})", ".eml")
        if not path.exists():
            return path
    raise ValueError(f"{user} has too many mails of that subject")


@register_action("email.send_email", "Failed to send email to {recipient}.", writes=True)
def send_email(testbed: Testbed, sender: str, recipient: Any, subject: str, content: str) -> str:
    """Send a mail to one recipient."""
    if not isinstance(recipient, str):
        raise ActionError("Failed to send email to Multiple recipients. Only support one recipient.")
    mail = EmailMessage()
    mail["From"] = f"{parse_account(sender)}@{HOST}"
    mail["To"] = f"{parse_account(recipient)}@{HOST}"
    mail["Subject"] = subject
    mail.set_content(content)
    data = bytes(mail)
    names = sorted({parse_account(sender), parse_account(recipient)})
    for path in [choose_mail_path(testbed, name, subject) for name in names]:
        path.parent.mkdir(parents=True, exist_ok=True)
        testbed.save(path, data)
    return f"Successfully sent email to {recipient}."


@register_action("email.list_emails", "Failed to list emails for {username}.", why=False)
def list_emails(testbed: Testbed, username: str) -> str:
    """List the mails in a user's mailbox, with the start of each."""
    listed = format_mailbox(testbed.own("emails", username))
    return f"Successfully list emails for {username}:\n{listed}" if listed else f"No emails found for {username}."


@register_action("email.read_email", "Failed to read email {email_id} for {username}.", why=False)
def read_email(testbed: Testbed, username: str, email_id: Any) -> str:
    """Show one mail of a user's mailbox."""
    name = str(email_id)
    testbed.own("emails", username)
    message = read_mail(testbed.own(f"emails/{username}", name.removesuffix(".eml"), ".eml"))
    head = f"Successfully read email {name} for {username}:\n{format_head(message)}"
    return f"{head}Content: {extract_body(message)}...\n"
