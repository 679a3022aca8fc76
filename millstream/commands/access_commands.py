"""The commands `millstream access`: hashes of passwords and tokens for [access.users] of a server's configuration."""

from __future__ import annotations

import sys

import typer

from millstream.errors import ServerError

from .command_line import command_group, one_sentence_errors


class NoPassword(ServerError):
    """No password was given, or the two entries differ."""

    code = "NO_PASSWORD"


def access_app() -> typer.Typer:
    app = command_group("Passwords and tokens for a server's users.")

    @app.command("password")
    def password() -> None:
        """Read a password and print its hash for the configuration."""
        with one_sentence_errors():
            from millstream.server.security.access import hash_password

            typer.echo(hash_password(_given()))

    @app.command("scram")
    def scram() -> None:
        """Read a password and print its SCRAM credentials, for Kafka and PostgreSQL clients."""
        with one_sentence_errors():
            from millstream.server.security.scram_texts import scram_texts

            typer.echo("\n".join(scram_texts(_given())))

    @app.command("token")
    def token() -> None:
        """Create a token. The first line is for the user and is stored nowhere; the second is for the configuration."""
        with one_sentence_errors():
            from millstream.server.security.access import hash_token, new_token

            made = new_token()
            typer.echo(f"token: {made}\nhash:  {hash_token(made)}")

    return app


def _given() -> str:
    given = _asked() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not given:
        raise NoPassword("no password was given")
    return given


def _asked() -> str:
    """Prompts twice, without echo."""
    import getpass

    first = getpass.getpass("Password: ")
    if getpass.getpass("Repeat: ") != first:
        raise NoPassword("the passwords differ")
    return first
