-- Selection: bids on some auctions.
-- sources: bid
CREATE STREAM q2 AS
  SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;

-- answer
SELECT auction, price FROM bid WHERE auction % 123 = 0
