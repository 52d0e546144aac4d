"""What commands share: options, the live block, progress, tables and their wording."""
