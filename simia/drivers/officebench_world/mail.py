"""email: a folder of .eml files a user, `emails/USER/SUBJECT.eml`; a mail lies with its sender and with who gets it."""

from __future__ import annotations

from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Any

from .desk import Desk, Failed, action, answering

LINE = "-" * 50
PREVIEW = 20  # letters of a mail that the list shows
HOST = "example.com"
MOST_ALIKE = 1000  # mails of one subject in a mailbox


def mailbox(folder: Path) -> list[tuple[str, EmailMessage]]:
    """The mails of a folder with their files' names, in the names' order."""
    if not folder.is_dir():
        return []
    return [(path.name, opened(path)) for path in sorted(folder.glob("*.eml")) if path.is_file()]


def opened(path: Path) -> EmailMessage:
    return BytesParser(EmailMessage, policy=policy.default).parsebytes(path.read_bytes())


def body_of(message: EmailMessage) -> str:
    """Its plain and HTML parts as text; attachments are left out."""
    parts = [part for part in message.walk() if part.get_content_type() in ("text/plain", "text/html")]
    return "\n".join(decoded(part) for part in parts)


def decoded(part: Any) -> str:
    data = part.get_payload(decode=True) or b""
    try:
        return str(data.decode(part.get_content_charset() or "utf-8", errors="replace"))
    except LookupError:  # a character set that nobody knows
        return str(data.decode("utf-8", errors="replace"))


def listed(folder: Path, letters: int | None = PREVIEW) -> str:
    """The mails of a folder in OfficeBench's words; `letters` of each mail's text, or all of it."""
    told = []
    for name, message in mailbox(folder):
        text = body_of(message)
        content = text if letters is None else f"{text[:letters]}..."
        told.append(f"Email ID: {name}\n{head(message)}Content: {content}\n{LINE}\n")
    return "".join(told)


def head(message: EmailMessage) -> str:
    return f"From: {message['From']}\nTo: {message['To']}\nSubject: {message['Subject']}\n"


def account(address: str) -> str:
    return address.split("@")[0]


def place_for(desk: Desk, user: str, subject: str) -> Path:
    """Where a mail of that subject goes: beside an earlier one of the same subject, never in its place."""
    desk.own("emails", user)  # the user's name is one
    for number in range(1, MOST_ALIKE):
        path = desk.own(f"emails/{user}", subject if number == 1 else f"{subject} ({number})", ".eml")
        if not path.exists():
            return path
    raise ValueError(f"{user} has too many mails of that subject")


@action("email.send_email", writes=True)
def send_email(desk: Desk, sender: str, recipient: Any, subject: str, content: str) -> str:
    """Send a mail to one recipient."""
    if not isinstance(recipient, str):
        raise Failed("Failed to send email to Multiple recipients. Only support one recipient.")
    with answering(f"Failed to send email to {recipient}.", why=True):
        mail = EmailMessage()
        mail["From"] = f"{account(sender)}@{HOST}"
        mail["To"] = f"{account(recipient)}@{HOST}"
        mail["Subject"] = subject
        mail.set_content(content)
        data = bytes(mail)
        paths = [place_for(desk, name, subject) for name in sorted({account(sender), account(recipient)})]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            desk.save(path, data)
    return f"Successfully sent email to {recipient}."


@action("email.list_emails")
def list_emails(desk: Desk, username: str) -> str:
    """List the mails in a user's mailbox, with the start of each."""
    with answering(f"Failed to list emails for {username}."):
        told = listed(desk.own("emails", username))
    return f"Successfully list emails for {username}:\n{told}" if told else f"No emails found for {username}."


@action("email.read_email")
def read_email(desk: Desk, username: str, email_id: Any) -> str:
    """Show one mail of a user's mailbox."""
    name = str(email_id)
    with answering(f"Failed to read email {name} for {username}."):
        desk.own("emails", username)
        message = opened(desk.own(f"emails/{username}", name.removesuffix(".eml"), ".eml"))
    return f"Successfully read email {name} for {username}:\n{head(message)}Content: {body_of(message)}...\n"
