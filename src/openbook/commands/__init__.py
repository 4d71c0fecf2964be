"""The commands, one file for each. `openbook.cli` names them and imports one only when it is called."""
